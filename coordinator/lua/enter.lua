-- Shared: how a job comes into its lines.
-- include line

-- (priority, sequence) as one number: a greater priority first, then who came first. to: back | front of its priority.
local function new_score(priority, to)
  local sequence = to == 'front' and -redis.call('INCR', P .. 'fronts') or redis.call('INCR', P .. 'sequence')
  return string.format('%.0f', sequence - priority * 17592186044416)
end

-- Into all its lines. Is it in front of all? Second: has one of them a mark?
local function enter(id, keys, score)
  local first, marked = true, false
  for _, key in ipairs(keys) do
    local line = P .. 'line:' .. key
    redis.call('ZADD', line, score, id)
    local heads = redis.call('ZRANGE', line, '0', '1')
    first = first and heads[1] == id
    if not heads[2] then
      redis.call('ZADD', P .. 'lanes', '0', key)
    elseif is_mark(heads[1]) then
      marked = true
    elseif heads[1] == id then
      local other = redis.call('HMGET', P .. 'job:' .. heads[2], 'state', 'keys')
      if other[1] ~= 'waiting' then
        pin(heads[2], keys_of(other[2]))
        first = false
      end
    end
  end
  return first, marked
end
