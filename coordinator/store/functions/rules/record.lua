-- Records: the hash job:<id>. A `job` is a table of fields read from it; job.name is the record's key.
local record = {}

-- How records are written: `format` in Redis names the format that all nodes understand (rules/nodes.lua). Each version
-- reads what an earlier one wrote.
--   1 (or none)  the spec is one field
--   2            a spec of more than 64 bytes is cut into pieces: fields spec, spec1, … spec7. A hash whose values all
--                have 64 bytes at most is one block of memory, and weighs half as much
record.FORMAT = 2
local PIECE, PIECES = 64, 8

-- fields: names and values in turns; the spec stands at `place`.
function record.cut(c, fields, place)
  local spec = fields[place]
  if #spec <= PIECE or #spec > PIECE * PIECES then return end
  if tonumber(redis.call('GET', c.P .. 'format') or 1) < 2 then return end
  fields[place] = string.sub(spec, 1, PIECE)
  for i = 1, math.ceil(#spec / PIECE) - 1 do
    fields[#fields + 1] = 'spec' .. i
    fields[#fields + 1] = string.sub(spec, i * PIECE + 1, (i + 1) * PIECE)
  end
end

-- The whole of it; `first` and `second`: the fields spec and spec1.
function record.spec_of(name, first, second)
  if not second then return first end
  local rest = redis.call('HMGET', name, 'spec2', 'spec3', 'spec4', 'spec5', 'spec6', 'spec7')
  for i = 1, #rest do rest[i] = rest[i] or '' end
  return first .. second .. table.concat(rest)
end

function record.keys_of(text)
  if not string.find(text, '\n', 1, true) then return {text} end
  local keys = {}
  for key in string.gmatch(text, '[^\n]+') do keys[#keys + 1] = key end
  return keys
end

-- max_attempts max_losses time_limit max_lifetime keep_success keep_failure (ms)
function record.limits_of(text)
  local limits = {}
  for number in string.gmatch(text, '%S+') do limits[#limits + 1] = tonumber(number) end
  return limits
end

-- Reads the named fields into `job`; a field that the record lacks stays nil.
function record.fill(job, ...)
  local names = {...}
  for i, value in ipairs(redis.call('HMGET', job.name, ...)) do
    if value then job[names[i]] = value end
  end
  return job
end

-- Only a job with `seldom` has these: there is more to look at than of a job that simply runs.
function record.fill_rare(job)
  return record.fill(job, 'losses', 'aliases', 'stop', 'condemned', 'expires', 'last', 'phase', 'ends', 'undo', 'back',
    'hold', 'forgiven', 'conflicts', 'parent', 'slots', 'group', 'tick', 'grab')
end

-- nil: no such job.
function record.read(c, id)
  local job = record.fill({name = c.P .. 'job:' .. id}, 'state', 'keys', 'limits', 'token', 'attempt', 'class', 'task',
    'node', 'runner', 'started', 'taken', 'tell', 'melt', 'seldom')
  if not job.state then return nil end
  return job.seldom and record.fill_rare(job) or job
end

-- The rollback's step at work: its number, and its time limit in ms.
function record.back_of(job)
  local number, limit = string.match(job.back or '', '^(%d+) (%d+)$')
  if number then return tonumber(number), tonumber(limit) end
  return 0, tonumber(string.match(job.undo, '^[^\n]*\n([^\n]*)'))
end

-- Writes fields, some of them rare ones.
function record.note(c, id, ...) redis.call('HSET', c.P .. 'job:' .. id, 'seldom', 1, ...) end

-- The id of a submit that melted into another stands for that job.
function record.resolve(c, id) return redis.call('HGET', c.P .. 'job:' .. id, 'alias') or id end

-- A plain client's job has no app: it belongs to that of its last node.
function record.app_of(c, job)
  local app = string.match(job.class, '^[^\n]*')
  return app ~= '' and app or job.node and redis.call('HGET', c.P .. 'node:' .. job.node, 'app') or ''
end

-- Leases of jobs, and of locks in plain code: two sets, so that each can be counted.
function record.leases_of(job) return job.class and 'leases' or 'locks' end

return record
