-- Locks: the leases of the processes that act now, lock:<key> = "<token> <instant at which it ends>". Where several may
-- run at once, all but one of them hold a slot: slot:<i>:<key>, i from 2. A record's `slots` names the slot of each
-- key, 1 for the lock itself; none = all are locks.
local locks = {}

local MARGIN = 60000000 -- µs: a server that begins may have lost the fences of so much time
local given = {} -- prefix -> the last fence that this very server, or its library, has given. Gone with either
local terms = {} -- prefix -> the id of replication that the server had then

-- A waiter for a lock in plain code asks each second. One that did not for so long (ms) is taken for dead.
locks.SILENT = 3000

-- seen: the uptime at which the waiter asked last. Time in which everybody was silent does not count.
function locks.is_silent(c, seen) return seen and c.uptime - seen > locks.SILENT end

function locks.name(c, key, slot)
  return slot == 1 and c.P .. 'lock:' .. key or c.P .. 'slot:' .. slot .. ':' .. key
end

function locks.slots_of(text)
  local slots = {}
  for slot in string.gmatch(text or '', '%d+') do slots[#slots + 1] = tonumber(slot) end
  return slots
end

-- Does the server begin? It does after a start, and when it becomes the master again: Redis gives it another id then.
-- It is asked only where another server may have given fences meanwhile.
local function begins(c, before, last, silence)
  if before == last and silence <= c.gap then return false end
  local info, known = redis.pcall('INFO', 'replication'), terms[c.P]
  terms[c.P] = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
  return not before or terms[c.P] ~= known
end

-- The number that orders all claims and versions: max(last + 1, the installation's clock in µs). It grows over
-- restarts, cut files and failovers: the first one that a server gives is ahead of all that it may have lost.
-- The silence before it sets it apart from the first one of a server between, of which nothing was kept.
function locks.next_fence(c)
  local before = given[c.P]
  local fence = math.max(c.now * 1000 + c.micros, (before or 0) + 1)
  local text = string.format('%.0f', fence)
  local last = tonumber(redis.call('SET', c.P .. 'fence', text, 'GET') or 0)
  local silence = base.silence(c)
  local first = begins(c, before, last, silence)
  if first or last >= fence then
    fence = first and math.max(fence, last + 1 + silence * 1000) + MARGIN or last + 1
    text = string.format('%.0f', fence)
    redis.call('SET', c.P .. 'fence', text)
  end
  given[c.P] = fence
  return text
end

local function value_of(c, token, ttl) return token .. ' ' .. base.text_of(c.now + ttl) end

local function token_of(value) return string.match(value, '^(.*) %d+$') end

-- Redis keeps it longer where its clock went back.
local function is_over(c, value)
  local till = string.match(value, ' (%d+)$')
  return till and tonumber(till) <= c.now
end

local function set(c, name, token, ttl) redis.call('SET', name, value_of(c, token, ttl), 'PX', ttl) end

-- Is it got?
local function set_free(c, name, token, ttl)
  local held = redis.call('SET', name, value_of(c, token, ttl), 'NX', 'GET', 'PX', ttl)
  local left = held and is_over(c, held)
  if left then set(c, name, token, ttl) end
  return not held or left
end

-- It is hardly ever another's; then it is put back as it was.
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

-- Which lock of the key was got, or with a limit, which slot; nil = none is free.
local function acquire_one(c, key, token, ttl)
  if set_free(c, c.P .. 'lock:' .. key, token, ttl) then return 1 end
  local others = line.limit(c, key) - 1
  for i = 0, others - 1 do
    local slot = 2 + (c.now + i) % others
    if set_free(c, locks.name(c, key, slot), token, ttl) then return slot end
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
  while not set_free(c, locks.name(c, key, slot), token, ttl) do slot = slot + 1 end
  return slot
end

-- Each lock is the holder's again; where that of a key with a limit was given away, another slot of it.
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

-- The ttl of a lock in plain code is over, as far as its holder knows.
function locks.is_lapsed(c, job)
  local held = locks.slots_of(job.slots)
  for i, key in ipairs(record.keys_of(job.keys)) do
    local value = redis.call('GET', locks.name(c, key, held[i] or 1))
    if not value or token_of(value) ~= job.token or is_over(c, value) then return true end
  end
  return false
end

return locks
