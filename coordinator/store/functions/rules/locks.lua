-- Locks: the leases of the processes that act now, lock:<key>. Where several may run at once, all but one of them hold
-- a slot: slot:<i>:<key>, i from 2. A record's `slots` names the slot of each key, 1 for the lock itself; none = all
-- are locks.
local locks = {}

function locks.name(c, key, slot)
  return slot == 1 and c.P .. 'lock:' .. key or c.P .. 'slot:' .. slot .. ':' .. key
end

function locks.slots_of(text)
  local slots = {}
  for slot in string.gmatch(text or '', '%d+') do slots[#slots + 1] = tonumber(slot) end
  return slots
end

-- The number that orders all claims and versions: max(last + 1, server time in µs). It grows over restarts, cut files
-- and failovers.
function locks.next_fence(c)
  local fence = c.time[1] .. string.format('%06d', c.time[2])
  local last = redis.call('SET', c.P .. 'fence', fence, 'GET')
  if last and (#last ~= #fence or last >= fence) and tonumber(last) >= tonumber(fence) then
    fence = string.format('%.0f', last + 1)
    redis.call('SET', c.P .. 'fence', fence)
  end
  return fence
end

local function unlock(name, token)
  if redis.call('GET', name) == token then redis.call('DEL', name) end
end

function locks.release(c, keys, token, slots)
  if not slots then
    for _, key in ipairs(keys) do unlock(c.P .. 'lock:' .. key, token) end
    return
  end
  slots = locks.slots_of(slots)
  for i, key in ipairs(keys) do unlock(locks.name(c, key, slots[i] or 1), token) end
end

-- Which lock of the key was got, or with a limit, which slot; nil = none is free.
local function acquire_one(c, key, token, ttl)
  if redis.call('SET', c.P .. 'lock:' .. key, token, 'NX', 'PX', ttl) then return 1 end
  local others = line.limit(c, key) - 1
  for i = 0, others - 1 do
    local slot = 2 + (c.now + i) % others
    if redis.call('SET', locks.name(c, key, slot), token, 'NX', 'PX', ttl) then return slot end
  end
end

-- All locks or none. `before`: the slots that the job's record names; the record follows.
function locks.acquire(c, id, keys, token, ttl, before)
  local slots, plain = {}, true
  for i, key in ipairs(keys) do
    slots[i] = acquire_one(c, key, token, ttl)
    if not slots[i] then return locks.release(c, keys, token, table.concat(slots, ' ')) and false end
    plain = plain and slots[i] == 1
  end
  if before or not plain then
    redis.call('HSET', c.P .. 'job:' .. id, 'slots', table.concat(slots, ' '), 'seldom', 1)
  end
  return true
end

-- The first free slot beyond those of the limit, which was lowered below its holders.
local function acquire_beyond(c, key, token, ttl)
  local slot = line.limit(c, key) + 1
  while not redis.call('SET', locks.name(c, key, slot), token, 'NX', 'PX', ttl) do slot = slot + 1 end
  return slot
end

-- Each lock is the holder's again; where that of a key with a limit was given away, another slot of it.
function locks.renew(c, id, keys, token, slots, ttl)
  local held, moved = locks.slots_of(slots), false
  for i, key in ipairs(keys) do
    local name = locks.name(c, key, held[i] or 1)
    local other = redis.call('GET', name)
    local slot = other and other ~= token and (acquire_one(c, key, token, ttl) or acquire_beyond(c, key, token, ttl))
    if not slot then redis.call('SET', name, token, 'PX', ttl) end
    held[i], moved = slot or held[i] or 1, moved or slot
  end
  if moved then record.note(c, id, 'slots', table.concat(held, ' ')) end
end

return locks
