-- Shared: locks, the leases of the processes that act now.
-- include fence
-- include marks

-- Where several may run at once, all but one hold a slot: slot:<i>:<key>, i from 2.
local function lock_name(key, slot) return slot == 1 and P .. 'lock:' .. key or P .. 'slot:' .. slot .. ':' .. key end

-- The numbers in a record's `slots`, 1 for a lock itself; nil = all are locks.
local function slots_of(text)
  local slots = {}
  for slot in string.gmatch(text or '', '%d+') do slots[#slots + 1] = tonumber(slot) end
  return slots
end

local function unlock_all(keys, token, slots)
  slots = slots and slots_of(slots)
  for i, key in ipairs(keys) do
    local name = slots and lock_name(key, slots[i] or 1) or P .. 'lock:' .. key
    if redis.call('GET', name) == token then redis.call('DEL', name) end
  end
end

-- Which lock of the key it got, or with a limit, which slot; nil = none is free.
local function lock_one(key, token, ttl)
  if redis.call('SET', P .. 'lock:' .. key, token, 'NX', 'PX', ttl) then return 1 end
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

-- A lock in plain code is granted where it stands: its runner is the process that waits for it. Returns its fence.
local function grant(id, keys, token, ttl)
  if not lock_all(id, keys, token, ttl) then return end
  redis.call('ZADD', P .. 'locks', now + ttl, id)
  return next_fence()
end
