-- Records: the hash job:<id>. A `job` is a table of fields read from it; job.name is the record's key.
local record = {}

-- The number of the records' format. Redis notes it under `format`, and refuses the steps of a version whose own number
-- is lower (functions/rules/step.lua).
record.FORMAT = 1

-- A job that only uses quotas has no key: it stands in no line.
function record.keys_of(text)
  if text == '' then return {} end
  if not string.find(text, '\n', 1, true) then return {text} end
  local keys = {}
  for key in string.gmatch(text, '[^\n]+') do keys[#keys + 1] = key end
  return keys
end

-- The field `limits`: max_attempts max_losses time_limit max_lifetime keep_success keep_failure keep_most? (times in
-- ms).
function record.max_attempts(job) return tonumber(string.match(job.limits, '^%S+')) end
function record.max_losses(job) return tonumber(string.match(job.limits, '^%S+ (%S+)')) end
function record.time_limit(job) return tonumber(string.match(job.limits, '^%S+ %S+ (%S+)')) end
function record.max_lifetime(job) return tonumber(string.match(job.limits, '^%S+ %S+ %S+ (%S+)')) end

-- The last three, as text; '' = no bound on how many successes are kept.
function record.kept(job) return string.match(job.limits, '^%S+ %S+ %S+ %S+ (%S+) (%S+) ?(%S*)$') end

-- Puts another time limit, in ms, into the text of `limits`.
function record.with_time(limits, time) return (string.gsub(limits, '^(%S+ %S+) %S+', '%1 ' .. time)) end

-- Redis keeps a hash as one block of memory while none of its values has more than 64 bytes, and else as a table, which
-- takes up to twice as much. So these texts lie in pieces: the first 64 bytes in the field of that name, the next in
-- <field>1, <field>2 and so on; the first shorter piece is the last. Each piece makes all other fields slower to find,
-- so a text of more than 256 bytes is whole.
local LONG, PIECE, MOST = {spec = true, result = true, past = true}, 64, 256

-- Cuts such texts in a list of names and values, from this index on. Returns the list.
function record.cut(list, from)
  for i = from, #list, 2 do
    local name, text = list[i], list[i + 1]
    if LONG[name] and #text >= PIECE and #text <= MOST then
      list[i + 1] = string.sub(text, 1, PIECE)
      for number = 1, #text / PIECE do
        list[#list + 1] = name .. number
        list[#list + 1] = string.sub(text, number * PIECE + 1, (number + 1) * PIECE)
      end
    end
  end
  return list
end

-- Writes fields, which may have such texts.
function record.write(name, ...) redis.call('HSET', name, unpack(record.cut({...}, 1))) end

-- The text of a field of which the value was read; nil or false = none.
function record.whole(name, field, value)
  local text, number = value, 0
  while value and #value == PIECE do
    number = number + 1
    value = redis.call('HGET', name, field .. number)
    text = text .. (value or '')
  end
  return text
end

-- Reads the texts of these fields; nil: the key is no hash.
function record.texts(name, fields)
  local values = redis.pcall('HMGET', name, unpack(fields))
  if values.err then return nil end
  for i, field in ipairs(fields) do
    if LONG[field] then values[i] = record.whole(name, field, values[i]) end
  end
  return values
end

-- Reads the named fields into `job`; a field that the record lacks stays nil.
function record.fill(job, ...)
  local names, values = {...}, redis.call('HMGET', job.name, ...)
  for i = 1, #names do
    if values[i] then job[names[i]] = values[i] end
  end
  return job
end

-- Reads the rare fields. Only jobs with the field `seldom` have any; most jobs simply run.
function record.fill_rare(job)
  return record.fill(job, 'losses', 'aliases', 'stop', 'condemned', 'expires', 'last', 'phase', 'ends', 'undo', 'back',
    'hold', 'forgiven', 'conflicts', 'parent', 'group', 'tick', 'grab', 'waited', 'uses', 'lack', 'lacked', 'apart',
    'after', 'blocks', 'event')
end

-- Reads the rare fields that `seldom` tells of: the text of the field `uses` where a job has no other; LACKS where it
-- also has those of one that lacked a quota; else any.
record.LACKS = 'lacks'

function record.fill_more(job)
  local seldom = job.seldom
  if not seldom or seldom == '1' then return seldom and record.fill_rare(job) or job end
  job.seldom, job.light = nil, true
  if seldom == record.LACKS then return record.fill(job, 'uses', 'lack', 'lacked', 'apart') end
  job.uses = seldom
  return job
end

-- Reads a job; nil = there is none. A field that the record lacks is false.
function record.read(c, id)
  local name = c.P .. 'job:' .. id
  local state, keys, limits, token, attempt, class, task, node, runner, submitted, started, taken, fence, tell, equal,
    seldom = unpack(redis.call('HMGET', name, 'state', 'keys', 'limits', 'token', 'attempt', 'class', 'task', 'node',
      'runner', 'submitted', 'started', 'taken', 'fence', 'tell', 'equal', 'seldom'))
  if not state then return nil end
  local job = {name = name, state = state, keys = keys, limits = limits, token = token, attempt = attempt,
    class = class, task = task, node = node, runner = runner, submitted = submitted, started = started, taken = taken,
    fence = fence, tell = tell, equal = equal, seldom = seldom}
  return record.fill_more(job)
end

-- The current step of a rollback: its number, and its time limit in ms.
function record.back_of(job)
  local number, limit = string.match(job.back or '', '^(%d+) (%d+)$')
  if number then return tonumber(number), tonumber(limit) end
  return 0, tonumber(string.match(job.undo, '^[^\n]*\n([^\n]*)'))
end

-- Writes fields, some of them rare, and so sets `seldom`.
function record.note(c, id, ...) record.write(c.P .. 'job:' .. id, 'seldom', 1, ...) end

-- Resolves an alias: the id of a submit that coalesced into a job stands for that job.
function record.resolve(c, id) return redis.call('HGET', c.P .. 'job:' .. id, 'alias') or id end

-- The app of a job. A plain client's job has none: it belongs to the app of its last node.
function record.app_of(c, job)
  local app = string.match(job.class, '^[^\n]*')
  return app ~= '' and app or job.node and redis.call('HGET', c.P .. 'node:' .. job.node, 'app') or ''
end

-- The set with a job's lease. Jobs and locks in plain code have two sets, so that each can be counted.
function record.leases_of(job) return job.class and 'leases' or 'locks' end

return record
