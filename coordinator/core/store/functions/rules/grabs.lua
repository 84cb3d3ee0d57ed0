-- Grabs: grab:<lane> records who works or worked on an instance of a key, and how that ended. grabs:<key> lists the
-- instances of a key, and grabs the keys, by the time when they expire. Plain code holds the lane of its instance like
-- a lock; a job with an instance stands in that lane, and its field `grab` says for how long (ms) the record is kept
-- after its end. The field `earlier` has the earlier winners of the instance, the latest first.
local grabs = {}

local FIELDS = {'state', 'job', 'token', 'fence', 'attempt', 'about', 'started', 'ended', 'value', 'failures',
  'earlier'}
local EARLIER, LONGEST = 10, 4000 -- number of earlier winners kept, and the most bytes kept of their values
local AGES = 3e12 -- ms: keeps the record of a job for as long as the job may wait

-- Reads a grab's fields; state '' = nobody has grabbed it. A job's grab has no token.
function grabs.read(c, lane)
  local grab = {name = c.P .. 'grab:' .. lane}
  for i, value in ipairs(redis.call('HMGET', grab.name, unpack(FIELDS))) do grab[FIELDS[i]] = value or nil end
  grab.state = grab.state or ''
  return grab
end

function grabs.reply(verdict, grab)
  return {verdict, grab.fence or '', grab.attempt or '', grab.about or '', grab.started or '', grab.ended or '',
    grab.value or '', grab.earlier or ''}
end

local function names_of(lane)
  local first = string.find(lane, '\31', 1, true)
  local second = string.find(lane, '\31', first + 1, true)
  return string.sub(lane, first + 1, second - 1), string.sub(lane, second + 1)
end

-- The instance for people: its key and its name.
function grabs.shown(lane) return table.concat({names_of(lane)}, ' ') end

local function forget_old(c, list) redis.call('ZREMRANGEBYSCORE', list, '-inf', base.text_of(c.wall)) end

-- Adds an entry to a list until `ms` from now. To save commands, the list outlives its last entry, and is only cleaned
-- when its ttl is too short.
local function list_until(c, list, entry, ms)
  redis.call('ZADD', list, 'GT', base.text_of(c.wall + ms), entry)
  if redis.call('PTTL', list) >= ms then return false end
  forget_old(c, list)
  redis.call('PEXPIRE', list, base.text_of(2 * ms))
  return true
end

local function list(c, lane, ms)
  local key, instance = names_of(lane)
  if list_until(c, c.P .. 'grabs:' .. key, instance, ms) then list_until(c, c.P .. 'grabs', key, 2 * ms) end
end

-- Shortens the time for which the instance is listed.
local function list_less(c, lane, ms)
  local key, instance = names_of(lane)
  local instances, keys = c.P .. 'grabs:' .. key, c.P .. 'grabs'
  redis.call('ZADD', instances, base.text_of(c.wall + ms), instance)
  local till = redis.call('ZRANGE', instances, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', keys, till, key)
  for _, one in ipairs({instances, keys}) do
    forget_old(c, one)
    redis.call('PEXPIRE', one, base.text_of(redis.call('ZRANGE', one, -1, -1, 'WITHSCORES')[2] - c.wall))
  end
end

-- True if the work has failed as often as the caller allows: only an operator can let it go on.
function grabs.is_final(grab, attempts)
  return grab.state == 'failed' and tonumber(grab.failures or '0') >= tonumber(attempts)
end

-- The earlier winners as lines of JSON, with the present winner in front.
local function earlier_of(grab)
  local value = #(grab.value or '') <= LONGEST and grab.value or nil
  local earlier = {cjson.encode({state = grab.state, fence = grab.fence, attempt = grab.attempt, about = grab.about,
    started = grab.started, ended = grab.ended, value = value})}
  for one in string.gmatch(grab.earlier or '', '[^\n]+') do
    if #earlier < EARLIER then earlier[#earlier + 1] = one end
  end
  return table.concat(earlier, '\n')
end

-- Writes a new winner into the record and into `grab`. ms: how long the record is kept.
local function write(c, lane, grab, ms, job, token, fence, about, started)
  local attempt = string.format('%d', (tonumber(grab.attempt) or 0) + 1)
  if grab.about then
    grab.earlier = earlier_of(grab)
    redis.call('HSET', grab.name, 'earlier', grab.earlier)
  end
  if grab.ended then redis.call('HDEL', grab.name, 'ended', 'value') end
  redis.call('HSET', grab.name, 'state', 'running', 'job', job, 'token', token, 'fence', fence, 'attempt', attempt,
    'about', about, 'started', started)
  grab.state, grab.job, grab.token, grab.fence, grab.attempt = 'running', job, token, fence, attempt
  grab.about, grab.started, grab.ended, grab.value = about, started, nil, nil
  redis.call('PEXPIRE', grab.name, base.text_of(ms))
  list(c, lane, ms)
end

-- Writes plain code as the winner, which holds the lane under this id and token.
function grabs.begin_code(c, lane, grab, ms, id, token, fence, about)
  write(c, lane, grab, ms, id, token, fence, about, base.text_of(c.wall))
end

local function end_(c, grab, lane, state, keep, value)
  redis.call('HSET', grab, 'state', state, 'ended', base.text_of(c.wall), 'value', value)
  if state == 'failed' then redis.call('HINCRBY', grab, 'failures', 1) end
  if keep then redis.call('PEXPIRE', grab, keep) end
  redis.call('PUBLISH', c.P .. 'grabbed:' .. lane, state)
end

-- Writes how plain code ended. The instance stays listed for the rest of its lifetime.
function grabs.end_code(c, lane, grab, state, keep, value) end_(c, grab.name, lane, state, keep, value) end

-- Takes the instance from its winner for an operator, or lets work that failed for good be tried again.
function grabs.release(c, lane, grab, act)
  local value = cjson.encode(act)
  local reason = grab.state == 'failed' and grab.value
  if reason then value = string.sub(value, 1, -2) .. ',"reason":' .. reason .. '}' end
  redis.call('HDEL', grab.name, 'failures')
  end_(c, grab.name, lane, 'abandoned', nil, value)
end

-- The process at work, as JSON for the losers.
local function about_job(id, node, runner)
  local host, pid = string.match(node, '@(.*)$'), string.match(runner, '^%d+')
  return cjson.encode({identifier = id, host = host or node, pid = tonumber(pid) or 0, node = node})
end

-- Writes a job as the winner, before or while it runs.
function grabs.begin_job(c, lane, grab, keep, id)
  write(c, lane, grab, keep + AGES, id, '', '', about_job(id, '', ''), '')
end

-- Notes the node and process that claimed the job.
function grabs.take_job(c, lane, id, node, runner, fence)
  local name = c.P .. 'grab:' .. lane
  if redis.call('HGET', name, 'job') ~= id then return end
  redis.call('HSET', name, 'fence', fence, 'about', about_job(id, node, runner), 'started', base.text_of(c.wall))
end

-- Writes how the job ended. The instance stays listed as after plain code.
function grabs.end_job(c, lane, id, keep, state, lifetime)
  local name = c.P .. 'grab:' .. lane
  if redis.call('HGET', name, 'job') ~= id then return end
  local result, error = unpack(record.texts(c.P .. 'job:' .. id, {'result', 'error'}))
  local well = state == 'succeeded'
  end_(c, name, lane, well and 'complete' or 'failed', keep, well and result or not well and error or '')
  list_less(c, lane, keep + lifetime)
end

return grabs
