-- Shared: where several may run at once, all but one hold a slot: slot:<i>:<key>, i from 2.
-- include base

local function lock_name(key, slot) return slot == 1 and P .. 'lock:' .. key or P .. 'slot:' .. slot .. ':' .. key end

-- The numbers in a record's `slots`, 1 for a lock itself; nil = all are locks.
local function slots_of(text)
  local slots = {}
  for slot in string.gmatch(text or '', '%d+') do slots[#slots + 1] = tonumber(slot) end
  return slots
end
