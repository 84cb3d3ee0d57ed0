-- Coalescing: an equal submit coalesces into a job that has not started; the submit's id becomes the job's alias.
-- equal:<digest>:<key> names that job.
local coalesce = {}

local TEXTS, BYTES = 10000, 1048576 -- bounds of the united texts

-- Unites two values {"argument": [texts] or null}. null = everything, and so is its union with anything. Returns nil if
-- the union would be too large.
local function united(a, b)
  local held, added = cjson.decode(a), cjson.decode(b)
  for name, values in pairs(added) do
    if held[name] == cjson.null or values == cjson.null then
      held[name] = cjson.null
    else
      local seen = {}
      for _, value in ipairs(held[name]) do seen[value] = true end
      for _, value in ipairs(values) do
        if not seen[value] then table.insert(held[name], value) end
        seen[value] = true
      end
      if #held[name] > TEXTS then return nil end
    end
  end
  local text = cjson.encode(held)
  return #text <= BYTES and text or nil
end

-- Coalesces the submit `alias` into the job `id`. Returns the job, or nil (and changes nothing) if the united texts
-- would be too large.
function coalesce.join(c, id, alias, merge_args)
  local name = c.P .. 'job:' .. id
  local held = redis.call('HGET', name, 'merge_args')
  if merge_args and held then
    local text = united(held, merge_args)
    if not text then return nil end
    redis.call('HSET', name, 'merge_args', text)
  end
  redis.call('HSET', c.P .. 'job:' .. alias, 'alias', id)
  redis.call('RPUSH', c.P .. 'aliases:' .. id, alias)
  record.note(c, id, 'aliases', 1)
  return id
end

-- Handles a call `alias` of a keyed task that was skipped for the job `id`, or coalesced into it. If a caller may wait
-- for the call under its own id (`expected` is 1), the alias' record keeps the call, and the job also sends its result
-- to it. Returns the job, or '' if no job of the same app can send the result: a lock has the lane, or an operator
-- closed it.
function coalesce.stand_for(c, id, alias, verdict, fields, list, from)
  local name = c.P .. 'job:' .. id
  local class, state = unpack(redis.call('HMGET', name, 'class', 'state'))
  if not class or states.TERMINAL[state] then return '' end
  if string.match(class, '^[^\n]*') ~= string.match(fields.class, '^[^\n]*') then return '' end
  if fields.expected ~= '1' then return id end
  redis.call('HSET', c.P .. 'job:' .. alias, unpack(record.cut(list, from), from))
  if verdict == 'skipped' then
    redis.call('HSET', c.P .. 'job:' .. alias, 'skipped', id)
    redis.call('RPUSH', c.P .. 'aliases:' .. id, alias)
  end
  record.note(c, id, 'aliases', 1, 'shared', 1)
  if redis.call('HEXISTS', name, 'tell') == 0 then redis.call('HSET', name, 'tell', 1) end
  return id
end

-- Lets equal submits coalesce into this job, instead of an earlier one whose texts are full.
function coalesce.open(c, id, equal)
  local full = redis.call('SET', equal, id, 'GET')
  if full then redis.call('HDEL', c.P .. 'job:' .. full, 'equal') end
end

-- Lets nothing more coalesce into the job: it starts, or is over.
function coalesce.close(c, id, job, keys)
  redis.call('DEL', c.P .. 'equal:' .. job.equal .. ':' .. keys[1])
  redis.call('HDEL', c.P .. 'job:' .. id, 'equal')
end

return coalesce
