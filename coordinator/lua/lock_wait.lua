-- lock_wait: may the waiter go on? Where its turn has come it begins with the full ttl.
-- KEYS prefix
-- ARGV id
-- returns {state or '', fence or ''}
-- include lapsed
-- include slots
local id = ARGV[1]
local job = read(id)
if job and job.state == 'waiting' then
  for _, key in ipairs(keys_of(job.keys)) do end_lapsed(key) end
  ring_readied(0)
  job = read(id)
end
if not job then return {'', ''} end
local found = redis.call('HMGET', P .. 'job:' .. id, 'fence', 'ttl')
if job.state == 'running' then
  local slots = slots_of(job.slots)
  for i, key in ipairs(keys_of(job.keys)) do
    local name = lock_name(key, slots[i] or 1)
    if (redis.call('GET', name) or job.token) == job.token then redis.call('SET', name, job.token, 'PX', found[2]) end
  end
  redis.call('ZADD', P .. 'locks', now + found[2], id)
end
return {job.state, found[1] or ''}
