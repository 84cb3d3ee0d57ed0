-- Shared: a lock in plain code is granted where it stands: its runner is the process that waits for it.
-- include fence
-- include fields
-- include locking

local function grant(id, job, keys)
  fill(job, 'token', 'ttl')
  local ttl = tonumber(job.ttl)
  if not lock_all(id, keys, job.token, ttl) then return false end
  local fence = next_fence()
  redis.call('ZADD', P .. 'locks', now + ttl, id)
  redis.call('HSET', job.name, 'state', 'running', 'fence', fence, 'attempt', 1, 'taken', now_text, 'started', now_text)
  redis.call('RPUSH', P .. 'turn:' .. id, fence)
  redis.call('PEXPIRE', P .. 'turn:' .. id, job.ttl)
  return true
end
