-- Shared: lines. line:<key> is a sorted set of job ids; a job has one score in all its lines.
-- include ring

-- Stands in front of a paused line; no job has such an id.
local PAUSED = '\1paused'

local function holder_of(key)
  local heads = redis.call('ZRANGE', P .. 'line:' .. key, 0, 1)
  return heads[1] == PAUSED and heads[2] or heads[1]
end

local function in_front(id, keys)
  for _, key in ipairs(keys) do
    if redis.call('ZRANGE', P .. 'line:' .. key, 0, 0)[1] ~= id then return false end
  end
  return true
end

-- Into all its lines. Who was admitted before is pinned in front: from then nobody overtakes it.
local function enter(id, keys, score)
  local first = true
  for _, key in ipairs(keys) do
    local line = P .. 'line:' .. key
    redis.call('ZADD', line, score, id)
    local heads = redis.call('ZRANGE', line, 0, 2)
    if heads[1] == PAUSED then
      table.remove(heads, 1)
      first = false
    end
    if heads[1] == id and heads[2] and redis.call('HGET', P .. 'job:' .. heads[2], 'state') ~= 'waiting' then
      redis.call('ZADD', line, '-inf', heads[2])
      first = false
    end
    first = first and heads[1] == id
  end
  return first
end
