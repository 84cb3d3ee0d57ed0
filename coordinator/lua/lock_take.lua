-- lock_take: a lock in plain code. Where its lane is free it is taken at once, with few commands; else as any submit.
-- KEYS prefix
-- ARGV id key when_busy priority not_before delay room name1 limits name2 token name3 ttl
--   name1, name2, name3: limits, token, ttl; the rest as of job_submit
-- returns as job_submit
-- include fence
local id, key, when_busy, priority, not_before, delay, room, name1, limits, name2, token, name3, ttl = unpack(ARGV)
local record, line, lock = P .. 'job:' .. id, P .. 'line:' .. key, P .. 'lock:' .. key
if redis.call('EXISTS', record, line, lock) == 0 then
  local fence = next_fence()
  redis.call('HSET', record, 'state', 'running', 'keys', key, 'limits', limits, 'token', token, 'ttl', ttl,
    'fence', fence, 'attempt', 1, 'submitted', now, 'taken', now, 'started', now)
  redis.call('ZADD', line, '-inf', id)
  redis.call('ZADD', P .. 'lanes', 0, key)
  redis.call('SET', lock, token, 'NX', 'PX', ttl)
  redis.call('ZADD', P .. 'locks', now + ttl, id)
  return {'started', 0, id, fence, {}}
end
-- include job_submit
