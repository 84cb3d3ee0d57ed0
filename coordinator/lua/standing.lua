-- Shared: who stands in a line, marks left out.
-- include marks

local function marks_of(key)
  local heads = redis.call('ZRANGE', P .. 'line:' .. key, 0, 1)
  if not heads[1] or not is_mark(heads[1]) then return 0 end
  return heads[2] and is_mark(heads[2]) and 2 or 1
end

local function holder_of(key)
  local marks = marks_of(key)
  return redis.call('ZRANGE', P .. 'line:' .. key, marks, marks)[1]
end

-- 0 = in front, -1 = not in line.
local function place_of(id, key)
  local place = redis.call('ZRANK', P .. 'line:' .. key, id)
  return not place and -1 or place > 0 and place - marks_of(key) or 0
end

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
