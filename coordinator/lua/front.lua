-- Shared: who may start.
-- include marks

-- May it start? Second: is there a mark in one of its lines?
local function in_front(id, keys, weight)
  -- In a line with a mark: is it among those that may run now? One of weight `all` runs alone, and nobody passes it.
  local function within(key)
    local line = P .. 'line:' .. key
    if redis.call('ZSCORE', line, PAUSED) then return false end
    local place = redis.call('ZRANK', line, id) - 1
    if place >= limit_of(key) or (weight and place > 0) then return false end
    local pinned = redis.call('ZCOUNT', line, '-inf', '-inf') - 1
    for _, other in ipairs(redis.call('ZRANGE', line, pinned == 1 and 1 or pinned + 1, place)) do
      if redis.call('HGET', P .. 'job:' .. other, 'weight') then return false end
    end
    return true
  end

  local marked = false
  for _, key in ipairs(keys) do
    local first = redis.call('ZRANGE', P .. 'line:' .. key, 0, 0)[1]
    if is_mark(first) then
      if not within(key) then return false end
      marked = true
    elseif first ~= id then
      return false
    end
  end
  return true, marked
end
