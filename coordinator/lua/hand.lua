-- Shared: a job is handed to a runner, with a new token, a new fence and the full ttl.
-- include fence
-- include fields
-- include locking

-- What the runner must know: the id, then keys, task, spec, attempt, losses, fence, limits, unite, class, tell; last, of a
-- job that was not simply started, where it stands.
local CLASS = 10

-- What it needs to be started.
local function fill_for_start(job, ...)
  fill(job, 'limits', 'tell', 'melt', 'seldom', 'attempt', 'taken', 'spec', 'unite', ...)
  return job.seldom and fill_rare(job) or job
end

local function start(id, job, node, runner, token, ttl)
  local keys = keys_of(job.keys)
  local limit = tonumber(string.match(job.limits, '^%S+ %S+ (%S+)'))
  if not lock_all(id, keys, token, ttl, job.slots) then return false end
  local attempt, fence = (job.attempt or 0) + 1, next_fence()
  redis.call('HSET', job.name, 'state', 'running', 'token', token, 'fence', fence, 'attempt', attempt,
    'node', node, 'runner', runner, 'started', now_text, 'taken', job.taken or now_text)
  redis.call('ZADD', P .. 'leases', text_of(now + ttl), id)
  if job.phase == 'rollback' then limit = tonumber(string.match(job.undo, '^[^\n]*\n([^\n]*)')) end
  local till = limit > 0 and text_of(now + limit) or '0'
  redis.call('HSET', P .. 'work:' .. node, runner, token .. ' ' .. till .. ' ' .. id)
  if job.melt then
    -- include unmelt
    unmelt(id, job, keys)
  end
  if job.expires then redis.call('ZREM', P .. 'expiry', id) end
  return {id, job.keys, job.task, job.spec, attempt, job.losses or false, fence, job.limits, job.unite or false,
    job.class, job.tell or false,
    job.seldom and redis.call('HMGET', job.name, 'phase', 'step', 'value', 'forgiven', 'error') or false}
end
