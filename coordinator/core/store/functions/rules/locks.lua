-- Locks: the leases of the processes that act now, lock:<key> = "<token> <end>".
local locks = {}

local MARGIN = 60000000 -- µs: a server that starts may have lost the fences of this much time
local SPACE = 10000 -- the most fences that a server may have lost in any case; in µs, less than the life of any server
local last_fence = {} -- prefix -> the last fence from this server; lost when it or the library is loaded anew
local terms = {} -- prefix -> the server's replication id at that time
local noted = {} -- prefix -> the replication id for which `began` was written

-- ms: a waiter for a lock in plain code asks each second, and counts as dead after this silence.
locks.SILENT = 3000

-- seen: the uptime of the waiter's last request. By the uptime, silences of the whole installation do not count.
function locks.is_silent(c, seen) return seen and c.uptime - seen > locks.SILENT end

-- True after the server started, or became the master again, which changes its replication id. The id is read only if
-- another server may have given fences meanwhile.
local function begins(c, before, last)
  local rested = base.has_rested(c)
  if before == last and not rested then return false end
  local info, known = redis.pcall('INFO', 'replication'), terms[c.P]
  terms[c.P] = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
  local new = not before or terms[c.P] ~= known
  if new and noted[c.P] ~= terms[c.P] then
    noted[c.P] = terms[c.P]
    redis.call('SET', c.P .. 'began', base.text_of(c.uptime * 1000 + c.micros))
  end
  return new
end

-- Names the term of this server as the master, as far as it gave fences.
function locks.term(c) return terms[c.P] end

-- The uptime in µs at which this server began, as text.
function locks.began(c)
  if not c.begin_known then
    c.begin_known = true
    local new = begins(c, last_fence[c.P], tonumber(redis.call('GET', c.P .. 'fence') or 0))
    if new then last_fence[c.P] = nil end -- the next fence finds out again
  end
  return redis.call('GET', c.P .. 'began')
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

function locks.release(c, keys, token)
  for _, key in ipairs(keys) do unlock(c, c.P .. 'lock:' .. key, token) end
end

-- Takes the locks of all keys, or none.
function locks.acquire(c, keys, token, ttl)
  for i, key in ipairs(keys) do
    if not set_free(c, c.P .. 'lock:' .. key, token, ttl) then
      for taken = 1, i - 1 do unlock(c, c.P .. 'lock:' .. keys[taken], token) end
      return false
    end
  end
  return true
end

-- Renews all locks of a holder. One that another holder has taken meanwhile stays that holder's.
function locks.renew(c, keys, token, ttl)
  for _, key in ipairs(keys) do
    local name = c.P .. 'lock:' .. key
    local other = redis.call('GET', name)
    if not other or token_of(other) == token or is_over(c, other) then set(c, name, token, ttl) end
  end
end

-- True if the ttl of a lock in plain code is over from its holder's point of view.
function locks.is_lapsed(c, job)
  for _, key in ipairs(record.keys_of(job.keys)) do
    local value = redis.call('GET', c.P .. 'lock:' .. key)
    if not value or token_of(value) ~= job.token or is_over(c, value) then return true end
  end
  return false
end

return locks
