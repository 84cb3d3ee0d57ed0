-- Coalescing: a job that was not started takes the part of an equal submit upon it; the submit's id becomes its alias.
-- melt:<digest>:<key> names the job into which an equal submit melts.
local coalesce = {}

local TEXTS, BYTES = 10000, 1048576 -- united texts have no more: what would be more becomes everything

-- unite: {"argument": [texts] or null}; null = everything, and everything with anything is everything.
local function united(a, b)
  local held, added = cjson.decode(a), cjson.decode(b)
  for name, values in pairs(added) do
    if held[name] == cjson.null or values == cjson.null or #held[name] + #values > TEXTS then
      held[name] = cjson.null
    else
      local seen = {}
      for _, value in ipairs(held[name]) do seen[value] = true end
      for _, value in ipairs(values) do
        if not seen[value] then table.insert(held[name], value) end
        seen[value] = true
      end
    end
  end
  local text = cjson.encode(held)
  if #text <= BYTES then return text end
  for name in pairs(held) do held[name] = cjson.null end
  return cjson.encode(held)
end

function coalesce.melt(c, id, alias, unite)
  local name = c.P .. 'job:' .. id
  local held = redis.call('HGET', name, 'unite')
  if unite and held then redis.call('HSET', name, 'unite', united(held, unite)) end
  redis.call('HSET', c.P .. 'job:' .. alias, 'alias', id)
  redis.call('RPUSH', c.P .. 'aliases:' .. id, alias)
  record.note(c, id, 'aliases', 1)
  return id
end

-- From here nothing melts into the job any more: it starts, or it is over.
function coalesce.close(c, id, job, keys)
  redis.call('DEL', c.P .. 'melt:' .. job.melt .. ':' .. keys[1])
  redis.call('HDEL', c.P .. 'job:' .. id, 'melt')
end

return coalesce
