-- Shared: whose turn it is.
-- include fence
-- include fields
-- include marks
-- include ready

-- It becomes ready if it may; a lock in plain code is granted where it stands.
local function admit_one(id, marked)
  local job = fill({name = P .. 'job:' .. id}, 'state', 'keys', 'class', 'task', 'group', 'weight')
  if job.state ~= 'waiting' or fresh and fresh.id == id then return end
  local keys, good = keys_of(job.keys), true
  if marked or #keys > 1 then
    -- include front
    good, marked = in_front(id, keys, job.weight)
  end
  if not good then return end
  if job.class then
    make_ready(id, job)
  else
    -- include grant
    if not grant(id, job, keys) then return end
  end
  if marked then
    -- include line
    pin(id, keys)
  end
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
