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
