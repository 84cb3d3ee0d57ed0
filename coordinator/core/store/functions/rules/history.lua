-- History: what people are told of a job's past.
-- The field `course` of a record has a line of JSON for each event that its instants (submitted, readied, taken,
-- started, ended) do not tell; a job that simply ran has none.
-- Ended jobs are listed by when they ended, ended:<state>, and by key and then by when, lane-runs: a member is key,
-- instant (13 digits) and id, parted by the byte 0. A list that is full becomes the one `before`, in place of that one.
-- So the newest INDEXED are always there, and nothing is ever removed one by one.
-- counts = what was counted, by what and task; samples = the counts, a line for each of the last minutes.
local history = {}

local MOST, LONGEST = 50, 200 -- lines of a course; bytes of each text in it
local INDEXED, MINUTE, DAY = 100000, 60000, 1440 -- entries of a list; ms; minutes

-- The text without what is too long; a character is never cut in two.
local function cut(text)
  if #text <= LONGEST then return text end
  return (string.gsub(string.sub(text, 1, LONGEST), '[\192-\255][\128-\191]*$', '')) .. '…'
end

-- Copies type, message, why, by, ticket and act from the JSON of an error or of an act; an error may be a mere text.
local function explain(event, detail)
  local good, about = pcall(cjson.decode, detail)
  if good and type(about) == 'string' then about = {message = about} end
  if not good or type(about) ~= 'table' then return end
  for _, name in ipairs({'type', 'message', 'why', 'by', 'ticket', 'act'}) do
    if type(about[name]) == 'string' then event[name] = cut(about[name]) end
  end
end

-- Adds to a number of a hash, which begins anew where it is damaged.
local function add(name, field, number)
  if type(redis.pcall('HINCRBY', name, field, number)) == 'table' then redis.call('HSET', name, field, number) end
end

-- Counts one more for this task of `what`: created, an outcome, retries, losses or faults. number?: another than one.
function history.count(c, what, task, number)
  add(c.P .. 'counts', what .. '\n' .. (task or ''), number or '1')
end

-- Lists a job that has ended.
function history.ended(c, id, keys, state)
  redis.call('ZADD', c.P .. 'ended:' .. state, c.now_text, id)
  for _, key in ipairs(keys) do redis.call('ZADD', c.P .. 'lane-runs', '0', key .. '\0' .. c.now_text .. '\0' .. id) end
end

local function turn(c, list, before)
  if redis.call('ZCARD', c.P .. list) < INDEXED then return end
  redis.call('UNLINK', c.P .. before)
  redis.call('RENAME', c.P .. list, c.P .. before)
end

-- Bounds the lists of ended jobs.
function history.bound(c)
  turn(c, 'lane-runs', 'lane-runs-before')
  for state in pairs(states.TERMINAL) do turn(c, 'ended:' .. state, 'ended-before:' .. state) end
end

-- The number of jobs in each state, and the totals of all tasks: by name.
function history.counts(c)
  local all = redis.call('HGETALL', c.P .. 'counts')
  local count = {created = 0, retries = 0, losses = 0, faults = 0}
  for i = 1, #all, 2 do
    local what = string.match(all[i], '^[^\n]*')
    count[what] = (count[what] or 0) + (tonumber(all[i + 1]) or 0)
  end
  local live = count.created
  for ending in pairs(states.TERMINAL) do
    count[ending] = count[ending] or 0
    live = live - count[ending]
  end
  for _, state in ipairs(states.APART) do
    count[state] = redis.call('SCARD', c.P .. 'state:' .. state)
  end
  local rolling = c.P .. 'state:rolling_back' -- each of these is ready, runs or is parked, too
  local running = redis.call('ZINTERCARD', 2, c.P .. 'leases', rolling)
  local parked = redis.call('SINTERCARD', 2, c.P .. 'state:parked', rolling)
  count.parked = count.parked - parked
  count.ready = redis.call('ZCARD', c.P .. 'ready-by-task') - (count.rolling_back - running - parked)
  count.running = redis.call('ZCARD', c.P .. 'leases') - running
  count.waiting = live - count.ready - count.running
  for _, state in ipairs(states.APART) do count.waiting = count.waiting - count[state] end
  return count
end

-- Keeps the counts of this minute, once.
function history.sample(c)
  local minute = base.text_of(math.floor(c.now / MINUTE))
  if redis.call('HGET', c.P .. 'swept', 'sampled') == minute then return end
  redis.call('HSET', c.P .. 'swept', 'sampled', minute)
  redis.call('RPUSH', c.P .. 'samples', c.now_text .. ' ' .. cjson.encode(history.counts(c)))
  redis.call('LTRIM', c.P .. 'samples', -DAY, -1)
end

-- Counts one more of what befalls the fleet rather than a job: leases_lost, fences_refused, rescues and their
-- kind, or revived, the outcome that an operator took back, and the task.
function history.tally(c, what) add(c.P .. 'tallies', what, '1') end

-- Notes what maintenance of the job's app is to raise an alert about. kind: held, failed or double_fault.
function history.trouble(c, id, job, kind)
  local app, now = record.app_of(c, job), c.now_text
  if app ~= '' then redis.call('ZADD', c.P .. 'troubles:' .. app, now, kind .. ' ' .. now .. ' ' .. id) end
end

-- Adds an event to a job's course. detail?: JSON of its cause or of the act; due?: when the job goes on.
-- at?: when it happened, nil = now. An attempt that ended, or was parked, is told with its beginning.
function history.note(c, job, what, detail, due, at)
  local before, step = unpack(redis.call('HMGET', job.name, 'course', 'step'))
  local event = {at = tonumber(at) or c.now, what = what, step = tonumber(step or nil), due = due,
    node = job.node or nil, attempt = tonumber(job.attempt or nil), since = tonumber(job.started or nil)}
  if detail then explain(event, detail) end
  local text = (before and before .. '\n' or '') .. cjson.encode(event)
  if select(2, string.gsub(text, '\n', '')) >= MOST then text = string.match(text, '\n(.*)$') end
  redis.call('HSET', job.name, 'course', text)
end

return history
