-- Shared: a job is handed to a runner, with a new token, a new fence and the full ttl.
-- include leave

-- What the runner must know: the id, then these fields.
local TOLD = {'keys', 'task', 'spec', 'attempt', 'losses', 'fence', 'limits', 'unite', 'class', 'tell'}
local CLASS = 10

-- Of a job that was not simply started: where it stands.
local function more_of(id)
  return redis.call('HMGET', P .. 'job:' .. id, 'phase', 'step', 'value', 'forgiven', 'error')
end

local function handed(id)
  local reply = redis.call('HMGET', P .. 'job:' .. id, unpack(TOLD))
  table.insert(reply, 1, id)
  reply[#reply + 1] = more_of(id)
  return reply
end

local function start(id, job, node, runner, token, ttl)
  local keys, name = keys_of(job.keys), P .. 'job:' .. id
  local limit = tonumber(string.match(job.limits, '^%S+ %S+ (%S+)'))
  if not lock_all(id, keys, token, ttl, job.slots) then return false end
  local attempt, fence = (job.attempt or 0) + 1, next_fence()
  redis.call('HSET', name, 'state', 'running', 'token', token, 'fence', fence, 'attempt', attempt,
    'node', node, 'runner', runner, 'started', now, 'taken', job.taken or now)
  redis.call('ZADD', P .. 'leases', now + ttl, id)
  if job.phase == 'rollback' then limit = tonumber(string.match(job.undo, '^[^\n]*\n([^\n]*)')) end
  local till = limit > 0 and now + limit or 0
  redis.call('HSET', P .. 'work:' .. node, runner, token .. ' ' .. till .. ' ' .. id)
  if job.melt then unmelt(id, job, keys) end
  if job.expires then redis.call('ZREM', P .. 'expiry', id) end
  local given = redis.call('HMGET', name, 'spec', 'unite')
  return {id, job.keys, job.task, given[1], attempt, job.losses or false, fence, job.limits, given[2], job.class,
    job.tell or false, job.seldom and more_of(id) or false}
end
