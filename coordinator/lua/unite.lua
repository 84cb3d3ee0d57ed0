-- Shared: a job that was not started takes another's part upon it; the other's id becomes its alias.
-- include record

-- unite: {"argument": [texts] or null}; null = everything, and everything with anything is everything.
local function united(a, b)
  local one, other = cjson.decode(a), cjson.decode(b)
  for name, values in pairs(other) do
    if one[name] == cjson.null or values == cjson.null or #one[name] + #values > 10000 then
      one[name] = cjson.null
    else
      local seen = {}
      for _, value in ipairs(one[name]) do seen[value] = true end
      for _, value in ipairs(values) do
        if not seen[value] then table.insert(one[name], value) end
        seen[value] = true
      end
    end
  end
  return cjson.encode(one)
end

local function melt_into(id, alias, unite)
  local name = P .. 'job:' .. id
  local held = redis.call('HMGET', name, 'unite')
  if unite and held[1] then redis.call('HSET', name, 'unite', united(held[1], unite)) end
  redis.call('HSET', P .. 'job:' .. alias, 'alias', id)
  redis.call('RPUSH', P .. 'aliases:' .. id, alias)
  note(id, 'aliases', 1)
  return id
end
