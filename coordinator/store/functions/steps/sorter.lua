-- Sorters: hold jobs until a batch is complete, then put them in line, sorted.

-- Sets the time of the flush: `idle` after the last job, at most `longest` after the first. A due flush stays due, even
-- if more jobs come before the warden looks.
local function put_off(c, sorter, idle, longest)
  local about = c.P .. 'sorter:' .. sorter
  redis.call('HSETNX', about, 'first', c.now)
  local first, due = unpack(redis.call('HMGET', about, 'first', 'due'))
  if not tonumber(due) or tonumber(due) > c.now then
    due = c.now + idle
    if longest ~= '0' then due = math.min(due, (tonumber(first) or c.now) + longest) end
    redis.call('HSET', about, 'due', base.text_of(due))
  end
  sorters.schedule(c, sorter)
end

-- sorter_add: holds a job until its sorter is flushed.
-- args id keys sorter sort_key idle longest asked priority not_before path identity act fields…
--   keys: joined by newlines; sort_key: its bytes are its place; idle, longest: ms until the flush, after the last and
--   after the first job; longest 0: no bound; asked: the caller's token; not_before: as of job_submit;
--   path, identity: the file from which it was made, '' = none; act: an operator's, '' = none; fields: as of
--   job_submit
-- returns collected, duplicate (another job has the id), or seen (this file has its job already); asked again with the
-- same
--   token: collected, or seen
step.define('sorter_add', {}, function(c, args)
  local id, keys, sorter, sort_key, idle, longest, asked, priority, not_before, path, identity, act =
    unpack(args, 1, 12)
  local name, fields = c.P .. 'job:' .. id, submit.by_name(c, args, 13)

  if path ~= '' and redis.call('HGET', c.P .. 'seen:' .. sorter, path) == identity then return 'seen' end
  if redis.call('EXISTS', name) == 1 then
    return redis.call('HGET', name, 'asked') == asked and 'collected' or 'duplicate'
  end

  submit.create(c, fields)
  redis.call('HSET', name, 'keys', keys, 'submitted', c.now, 'sorter', sorter .. '\n' .. sort_key, 'asked', asked,
    unpack(record.cut(args, 13), 13))
  if priority ~= '0' then redis.call('HSET', name, 'priority', priority) end
  if not_before ~= '0' then redis.call('HSET', name, 'not_before', base.instant(c, not_before)) end
  states.enter(c, id, 'collected')
  if fields.expires then states.must_start(c, id, fields.expires) end
  if path ~= '' then redis.call('HSET', c.P .. 'seen:' .. sorter, path, identity) end
  redis.call('ZADD', c.P .. 'collected:' .. sorter, 0, sort_key .. '\0' .. id)
  put_off(c, sorter, idle, longest)
  if act ~= '' then audit.note(c, audit.act(c, act), 'add', 'sorter', sorter, '', id) end
  return 'collected'
end)

local function put_in_line(c, id)
  local state, keys, priority, not_before =
    unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'state', 'keys', 'priority', 'not_before'))
  if state ~= 'collected' then return end
  local score = line.new_score(c, priority or 0, 'back')
  redis.call('SREM', c.P .. 'state:collected', id)
  if not_before and not base.is_past(c, not_before) then
    states.schedule(c, id, score, not_before)
  else
    admit.join(c, id, record.keys_of(keys), score)
  end
end

-- sorter_hasten: makes a sorter due now, for an operator.
-- args sorter act
-- returns how many orders it has collected; asked again: the same, until a flush seals them
step.define('sorter_hasten', {'allow-oom'}, function(c, args)
  local sorter, act = unpack(args)
  local about, count = c.P .. 'sorter:' .. sorter, redis.call('ZCARD', c.P .. 'collected:' .. sorter)
  local due = tonumber(redis.call('HGET', about, 'due')) or 0
  if count == 0 or due <= c.now then return count end
  redis.call('HSET', about, 'due', c.now_text)
  sorters.schedule(c, sorter)
  audit.note(c, audit.act(c, act), 'flush', 'sorter', sorter, base.text_of(count), '')
  return count
end)

-- sorter_flush: puts the next jobs of a due sorter in line; the first call seals its batch.
-- args most
--   most: how many jobs at most
-- returns how many sorters are still due; asked again: the next jobs
step.define('sorter_flush', {'allow-oom'}, function(c, args)
  local most = unpack(args)
  local sorter = redis.call('ZRANGEBYSCORE', c.P .. 'sorters', '-inf', c.now, 'LIMIT', 0, 1)[1]
  if not sorter then return 0 end
  local batch, collected = c.P .. 'batch:' .. sorter, c.P .. 'collected:' .. sorter
  if redis.call('EXISTS', batch) == 0 then
    redis.call('DEL', c.P .. 'sorter:' .. sorter)
    if redis.call('EXISTS', collected) == 1 then redis.call('RENAME', collected, batch) end
  end
  for _, member in ipairs(redis.call('ZRANGE', batch, 0, most - 1)) do
    put_in_line(c, string.match(member, '%z(.*)$'))
    redis.call('ZREM', batch, member)
  end
  sorters.schedule(c, sorter)
  return redis.call('ZCOUNT', c.P .. 'sorters', '-inf', c.now)
end)

-- sorter_forget: forgets files that are gone, but not their replacements.
-- args sorter pairs…
--   pairs: path and identity in turns
-- returns how many were forgotten; asked again: 0
step.define('sorter_forget', {'allow-oom'}, function(c, args)
  local seen, gone = c.P .. 'seen:' .. args[1], 0
  for i = 2, #args, 2 do
    if redis.call('HGET', seen, args[i]) == args[i + 1] then gone = gone + redis.call('HDEL', seen, args[i]) end
  end
  return gone
end)
