-- Shared: who may not stand in line, since others do.
-- include standing

-- Would one more wait in one of them?
local function any_busy(keys)
  for _, key in ipairs(keys) do
    local marks = marks_of(key)
    local length = redis.call('ZCARD', P .. 'line:' .. key) - marks
    if length > 0 and marks == 0 or marks > 0 and length >= limit_of(key) then return true end
    if marks > 0 and redis.call('ZSCORE', P .. 'line:' .. key, PAUSED) then return true end
  end
  return false
end

-- How many stand in line that were not started.
local function waiting_in(key)
  local marks, line = marks_of(key), P .. 'line:' .. key
  local started = redis.call('ZCOUNT', line, '-inf', '-inf') - marks
  local head = marks == 0 and started == 0 and redis.call('ZRANGE', line, 0, 0)[1]
  if head and redis.call('HGET', P .. 'job:' .. head, 'state') ~= 'waiting' then started = 1 end
  return redis.call('ZCARD', line) - marks - started
end

-- The first line in which that many wait, and how many do.
local function full_line(keys, room)
  for _, key in ipairs(keys) do
    local waiting = waiting_in(key)
    if waiting >= room then return key, waiting end
  end
end

-- Not to stand in line: the outcome, and of which job; or of which line it is full, and how many wait in it.
local function turned_away(id, keys, when_busy, melt, unite, room)
  local busy = when_busy ~= 'queue' and any_busy(keys)
  if busy and when_busy == 'skip' then return 'skipped', holder_of(keys[1]) or id end
  local other = busy and melt and redis.call('GET', melt)
  if other then
    -- include unite
    return 'coalesced', melt_into(other, id, unite)
  end
  local key, waiting = full_line(room and keys or {}, room)
  if key then return 'full', key, waiting end
end
