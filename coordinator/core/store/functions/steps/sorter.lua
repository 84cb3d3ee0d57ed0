-- Sorters: hold jobs until a batch is complete, then put them in line, sorted.

-- Sets the time of the flush: `idle` after the last job, at most `longest` after the first.
local function put_off(c, sorter, idle, longest)
  local about = c.P .. 'sorter:' .. sorter
  redis.call('HSETNX', about, 'first', c.now)
  local first, before = unpack(redis.call('HMGET', about, 'first', 'due'))
  local due = tonumber(before or nil)
  local moved = collect.ends(c, tonumber(first) or c.now, tonumber(idle), longest ~= '0' and tonumber(longest), due)
  if moved ~= due then redis.call('HSET', about, 'due', base.text_of(moved)) end
  sorters.schedule(c, sorter)
end

step.define('sorter_add', {}, function(
  c, job_id, keys, sorter, sort_key, idle, longest, asked, priority, not_before, path, identity, act, args, from)
  local id, name, fields = job_id, c.P .. 'job:' .. job_id, submit.by_name(c, args, from)

  if path ~= '' and redis.call('HGET', c.P .. 'seen:' .. sorter, path) == identity then return 'seen' end
  if redis.call('EXISTS', name) == 1 then
    return redis.call('HGET', name, 'asked') == asked and 'collected' or 'duplicate'
  end

  submit.create(c, fields)
  redis.call('HSET', name, 'keys', keys, 'submitted', c.now, 'sorter', sorter .. '\n' .. sort_key, 'asked', asked,
    unpack(record.cut(args, from), from))
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

step.define('sorter_hasten', {'allow-oom'}, function(c, sorter, act)
  local about, count = c.P .. 'sorter:' .. sorter, redis.call('ZCARD', c.P .. 'collected:' .. sorter)
  local due = tonumber(redis.call('HGET', about, 'due')) or 0
  if count == 0 or due <= c.now then return count end
  redis.call('HSET', about, 'due', c.now_text)
  sorters.schedule(c, sorter)
  audit.note(c, audit.act(c, act), 'flush', 'sorter', sorter, base.text_of(count), '')
  return count
end)

step.define('sorter_flush', {'allow-oom'}, function(c, most)
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

step.define('sorter_forget', {'allow-oom'}, function(c, sorter, args, from)
  local seen, gone = c.P .. 'seen:' .. sorter, 0
  for i = from, #args, 2 do
    if redis.call('HGET', seen, args[i]) == args[i + 1] then gone = gone + redis.call('HDEL', seen, args[i]) end
  end
  return gone
end)
