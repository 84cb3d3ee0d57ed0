-- Shared: whose turn it is.
-- include front
-- include locking
-- include ready

-- It becomes ready if it may; a lock in plain code is granted where it stands.
local function admit_one(id, marked)
  local name = P .. 'job:' .. id
  local job = redis.call('HMGET', name, 'state', 'keys', 'class', 'task', 'group', 'weight', 'token', 'ttl')
  if job[1] ~= 'waiting' then return end
  local keys, good = keys_of(job[2]), true
  if marked or #keys > 1 then good, marked = in_front(id, keys, job[6]) end
  if not good then return end
  if job[3] then
    redis.call('HSET', name, 'state', 'ready')
    make_ready(id, {keys = job[2], class = job[3], task = job[4], group = job[5]})
  else
    local fence = grant(id, keys, job[7], tonumber(job[8]))
    if not fence then return end
    redis.call('HSET', name, 'state', 'running', 'fence', fence, 'attempt', 1, 'taken', now, 'started', now)
    redis.call('RPUSH', P .. 'turn:' .. id, fence)
    redis.call('PEXPIRE', P .. 'turn:' .. id, job[8])
  end
  if marked then pin(id, keys) end
end

-- A place in front became free: whoever may start now, does.
local function admit(key)
  local line = P .. 'line:' .. key
  local id = redis.call('ZRANGE', line, '0', '0')[1]
  if not id then return redis.call('ZREM', P .. 'lanes', key) end
  if not is_mark(id) then return admit_one(id) end
  if redis.call('ZSCORE', line, PAUSED) then return end
  for _, one in ipairs(redis.call('ZRANGE', line, redis.call('ZCOUNT', line, '-inf', '-inf'), limit_of(key))) do
    admit_one(one, true)
    if redis.call('HGET', P .. 'job:' .. one, 'weight') then return end
  end
end
