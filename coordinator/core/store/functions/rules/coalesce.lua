-- Coalescing: an equal submit coalesces into a job that has not started; the submit's id becomes the job's alias.
-- equal:<digest>:<key> names that job.
local coalesce = {COLLECTS = 'collect'} -- in place of the digest, of a job that collects calls that are not equal

-- Coalesces the submit `alias` into the job `id`. Returns the job. known?: it has aliases already.
function coalesce.join(c, id, alias, known)
  redis.call('HSET', c.P .. 'job:' .. alias, 'alias', id)
  redis.call('RPUSH', c.P .. 'aliases:' .. id, alias)
  if not known then record.note(c, id, 'aliases', 1) end
  return id
end

-- Handles a call `alias` of a keyed task that was skipped for the job `id`, or coalesced into it. If a caller may wait
-- for the call under its own id (`expected` is 1), the alias' record keeps the call, and the job also sends its result
-- to it. Returns the job, or '' if no job of the same app can send the result: a lock has the lane, or an operator
-- closed it.
function coalesce.attach_caller(c, id, alias, verdict, fields, list, from)
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

-- Lets equal submits coalesce into this job.
function coalesce.open(id, equal) redis.call('SET', equal, id) end

-- Joins the calls that a job collected beside its first into its record. Returns the text, nil: there were none.
local function seal(c, id)
  local name, more = c.P .. 'job:' .. id, c.P .. 'calls:' .. id
  redis.call('HDEL', name, 'bytes')
  local calls = redis.call('LRANGE', more, 0, -1)
  if not calls[1] then return nil end
  local first = redis.call('HGET', name, 'calls')
  local text = string.sub(first, 1, -3) .. ',' .. table.concat(calls, ',') .. ']}'
  redis.call('HSET', name, 'calls', text)
  redis.call('DEL', more)
  return text
end

-- Lets nothing more coalesce into the job: it starts, or is over. Of a collector this is the seal; returns its calls
-- where there is more than the record had.
function coalesce.close(c, id, job, keys)
  redis.call('DEL', c.P .. 'equal:' .. job.equal .. ':' .. keys[1])
  redis.call('HDEL', c.P .. 'job:' .. id, 'equal')
  return job.equal == coalesce.COLLECTS and seal(c, id)
end

return coalesce
