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

-- The call `alias` of a keyed task was skipped for the job `id`, or melted into it. Somebody may wait for its end under
-- its own id (`expected` is 1): then the record of the alias keeps the call, and the job owes its end to it, too. Gives
-- the job, or '' where none of the same app can tell the end: a lock has the lane, or an operator stopped it.
function coalesce.stand_for(c, id, alias, verdict, fields, list, from)
  local name = c.P .. 'job:' .. id
  local class, state = unpack(redis.call('HMGET', name, 'class', 'state'))
  if not class or states.TERMINAL[state] then return '' end
  if string.match(class, '^[^\n]*') ~= string.match(fields.class, '^[^\n]*') then return '' end
  if fields.expected ~= '1' then return id end
  redis.call('HSET', c.P .. 'job:' .. alias, unpack(list, from))
  if verdict == 'skipped' then
    redis.call('HSET', c.P .. 'job:' .. alias, 'skipped', id)
    redis.call('RPUSH', c.P .. 'aliases:' .. id, alias)
  end
  record.note(c, id, 'aliases', 1, 'shared', 1)
  if redis.call('HEXISTS', name, 'tell') == 0 then redis.call('HSET', name, 'tell', 1) end
  return id
end

-- From here nothing melts into the job any more: it starts, or it is over.
function coalesce.close(c, id, job, keys)
  redis.call('DEL', c.P .. 'melt:' .. job.melt .. ':' .. keys[1])
  redis.call('HDEL', c.P .. 'job:' .. id, 'melt')
end

return coalesce
