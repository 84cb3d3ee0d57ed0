-- Locks: the leases of the processes that act now, lock:<key> = "<token> <end>". If several jobs may run at once, the
-- others hold slots: slot:<i>:<key>, i from 2. A record's field `slots` has the slot of each key, 1 = the lock itself;
-- without the field, all are locks.
local locks = {}

local MARGIN = 60000000 -- µs: a server that starts may have lost the fences of this much time
local SPACE = 10000 -- the most fences that a server may have lost in any case; in µs, less than the life of any server
local last_fence = {} -- prefix -> the last fence from this server; lost when it or the library is loaded anew
local terms = {} -- prefix -> the server's replication id at that time

-- ms: a waiter for a lock in plain code asks each second, and counts as dead after this silence.
locks.SILENT = 3000

-- seen: the uptime of the waiter's last request. By the uptime, silences of the whole installation do not count.
function locks.is_silent(c, seen) return seen and c.uptime - seen > locks.SILENT end

function locks.name(c, key, slot)
  return slot == 1 and c.P .. 'lock:' .. key or c.P .. 'slot:' .. slot .. ':' .. key
end

function locks.slots_of(text)
  local slots = {}
  for slot in string.gmatch(text or '', '%d+') do slots[#slots + 1] = tonumber(slot) end
  return slots
end

-- True after the server started, or became the master again, which changes its replication id. The id is read only if
-- another server may have given fences meanwhile.
local function begins(c, before, last)
  local rested = base.has_rested(c)
  if before == last and not rested then return false end
  local info, known = redis.pcall('INFO', 'replication'), terms[c.P]
  terms[c.P] = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
  return not before or terms[c.P] ~= known
end

-- The next fence, which orders all claims and versions: max(last + 1, the installation's clock in µs). It grows over
-- restarts, truncated files and failovers: a server's first fence is ahead of all that it may have lost. The margin is
-- added to the clock and not to the last fence: margins would add up over starts, and a server that lost them would be
-- behind.
function locks.next_fence(c)
  local clock, before = c.now * 1000 + c.micros, last_fence[c.P]
  local fence = math.max(clock, (before or 0) + 1)
  local text = base.text_of(fence)
  local last = tonumber(redis.call('SET', c.P .. 'fence', text, 'GET') or 0)
  local first = begins(c, before, last)
  if first or last >= fence then
    fence = first and math.max(clock + MARGIN, math.max(last, before or 0) + SPACE) or last + 1
    text = base.text_of(fence)
    redis.call('SET', c.P .. 'fence', text)
  end
  last_fence[c.P] = fence
  return text
end

local function value_of(c, token, ttl) return token .. ' ' .. base.text_of(c.now + ttl) end

local function token_of(value) return string.match(value, '^(.*) %d+$') end

-- True once a lock's own end has passed: Redis keeps the key for longer if its clock went back.
local function is_over(c, value)
  local till = string.match(value, ' (%d+)$')
  return till and tonumber(till) <= c.now
end

local function set(c, name, token, ttl) redis.call('SET', name, value_of(c, token, ttl), 'PX', ttl) end

-- Takes a lock if it is free or over; true if that worked.
local function set_free(c, name, token, ttl)
  local held = redis.call('SET', name, value_of(c, token, ttl), 'NX', 'GET', 'PX', ttl)
  local left = held and is_over(c, held)
  if left then set(c, name, token, ttl) end
  return not held or left
end

-- Deletes a lock. In the rare case that it is another token's, restores it.
local function unlock(c, name, token)
  local value = redis.call('GETDEL', name)
  if not value or token_of(value) == token then return end
  local left = (string.match(value, ' (%d+)$') or 0) - c.now
  if left > 0 then redis.call('SET', name, value, 'PX', left) end
end

function locks.release(c, keys, token, slots)
  if not slots then
    for _, key in ipairs(keys) do unlock(c, c.P .. 'lock:' .. key, token) end
    return
  end
  slots = locks.slots_of(slots)
  for i, key in ipairs(keys) do unlock(c, locks.name(c, key, slots[i] or 1), token) end
end

-- Takes the lock of the key, or with a limit a slot; returns its number, nil = none is free.
local function acquire_one(c, key, token, ttl)
  if set_free(c, c.P .. 'lock:' .. key, token, ttl) then return 1 end
  local others = line.limit(c, key) - 1
  for i = 0, others - 1 do
    local slot = 2 + (c.now + i) % others
    if set_free(c, locks.name(c, key, slot), token, ttl) then return slot end
  end
end

-- Takes the locks of all keys, or none, and writes `slots` into the record. before: the slots there until now.
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

-- Takes the first free slot beyond the limit, after an operator has lowered that below the number of holders.
local function acquire_beyond(c, key, token, ttl)
  local slot = line.limit(c, key) + 1
  while not set_free(c, locks.name(c, key, slot), token, ttl) do slot = slot + 1 end
  return slot
end

-- Renews all locks of a holder. If another holder has the slot by now, it takes another slot of the key.
function locks.renew(c, id, keys, token, slots, ttl)
  local held, moved = locks.slots_of(slots), false
  for i, key in ipairs(keys) do
    local name = locks.name(c, key, held[i] or 1)
    local other = redis.call('GET', name)
    local taken = other and token_of(other) ~= token and not is_over(c, other)
    local slot = taken and (acquire_one(c, key, token, ttl) or acquire_beyond(c, key, token, ttl))
    if not slot then set(c, name, token, ttl) end
    held[i], moved = slot or held[i] or 1, moved or slot
  end
  if moved then record.note(c, id, 'slots', table.concat(held, ' ')) end
end

-- True if the ttl of a lock in plain code is over from its holder's point of view.
function locks.is_lapsed(c, job)
  local held = locks.slots_of(job.slots)
  for i, key in ipairs(record.keys_of(job.keys)) do
    local value = redis.call('GET', locks.name(c, key, held[i] or 1))
    if not value or token_of(value) ~= job.token or is_over(c, value) then return true end
  end
  return false
end

return locks
