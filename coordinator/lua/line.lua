-- Shared: lines. line:<key> is a sorted set of job ids; a job has one score in all its lines.
-- include fence
-- include marks

-- (priority, sequence) as one number: a greater priority first, then who came first. to: back | front of its priority.
local function new_score(priority, to)
  local sequence = to == 'front' and -redis.call('INCR', P .. 'fronts') or redis.call('INCR', P .. 'sequence')
  return string.format('%.0f', sequence - priority * 17592186044416)
end

-- Whoever was started stays in front of all its lines: from then nobody overtakes it.
local function pin(id, keys)
  local score = redis.call('ZSCORE', P .. 'line:' .. keys[1], id)
  if score ~= '-inf' then redis.call('HSET', P .. 'job:' .. id, 'score', score) end
  for _, key in ipairs(keys) do redis.call('ZADD', P .. 'line:' .. key, '-inf', id) end
end

-- Into all its lines. Is it in front of all? Second: has one of them a mark?
local function enter(id, keys, score)
  local first, marked = true, false
  for _, key in ipairs(keys) do
    local line = P .. 'line:' .. key
    redis.call('ZADD', line, score, id)
    local heads = redis.call('ZRANGE', line, 0, 1)
    first = first and heads[1] == id
    if not heads[2] then
      redis.call('ZADD', P .. 'lanes', 0, key)
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
