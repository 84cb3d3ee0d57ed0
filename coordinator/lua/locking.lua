-- Shared: locks, the leases of the processes that act now.
-- include fence
-- include marks

local function unlock(name, token)
  if redis.call('GET', name) == token then redis.call('DEL', name) end
end

local function unlock_all(keys, token, slots)
  if not slots then
    for _, key in ipairs(keys) do unlock(P .. 'lock:' .. key, token) end
    return
  end
  -- include slots
  slots = slots_of(slots)
  for i, key in ipairs(keys) do unlock(lock_name(key, slots[i] or 1), token) end
end

-- Which lock of the key it got, or with a limit, which slot; nil = none is free.
local function lock_one(key, token, ttl)
  if redis.call('SET', P .. 'lock:' .. key, token, 'NX', 'PX', ttl) then return 1 end
  -- include slots
  local others = limit_of(key) - 1
  for i = 0, others - 1 do
    local slot = 2 + (now + i) % others
    if redis.call('SET', lock_name(key, slot), token, 'NX', 'PX', ttl) then return slot end
  end
end

-- All locks or none. `before`: the slots that the job's record names; the record follows.
local function lock_all(id, keys, token, ttl, before)
  local slots, plain = {}, true
  for i, key in ipairs(keys) do
    slots[i] = lock_one(key, token, ttl)
    if not slots[i] then return unlock_all(keys, token, table.concat(slots, ' ')) and false end
    plain = plain and slots[i] == 1
  end
  if before or not plain then
    redis.call('HSET', P .. 'job:' .. id, 'slots', table.concat(slots, ' '), 'seldom', 1)
  end
  return true
end
