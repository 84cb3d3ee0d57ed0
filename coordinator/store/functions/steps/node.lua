-- A node's warden says that it is there, lives, and leaves.

-- node_register: a node says who it is and what it serves; whatever waited for such a node wakes it.
-- args node incarnation ttl about serves tasks
--   about: JSON object, fields of node:<name>, among them app, capacity, ordinary, load; serves: JSON list of
--   'app …' | 'queue …' | 'label …'; tasks: JSON list of names
-- returns registered, or taken = another living worker has this name, or the number of a format of records that this
--   version cannot read; asked again: the same
step.define('node_register', {'allow-oom'}, function(c, args)
  local node, incarnation, ttl, about, serves, tasks = unpack(args)
  local other = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation') or redis.call('GET', c.P .. 'gone:' .. node)
  if other and other ~= incarnation and tonumber(redis.call('ZSCORE', c.P .. 'alive', node) or '0') > c.uptime then
    return 'taken'
  end
  local format = redis.call('GET', c.P .. 'format')
  if format and tonumber(format) > record.FORMAT then return format end
  pace.measure(c, node, '')
  for _, kind in ipairs({'serves:', 'tasks:', 'node:', 'gone:'}) do redis.call('DEL', c.P .. kind .. node) end
  redis.call('PERSIST', c.P .. 'work:' .. node)
  if other ~= incarnation then
    redis.call('DEL', c.P .. 'work:' .. node)
    redis.call('DEL', c.P .. 'rung:' .. node)
  end
  for field, value in pairs(cjson.decode(about)) do redis.call('HSET', c.P .. 'node:' .. node, field, value) end
  redis.call('HSET', c.P .. 'node:' .. node, 'incarnation', incarnation, 'since', c.wall,
    'format', record.FORMAT)
  for _, served in ipairs(cjson.decode(serves)) do redis.call('SADD', c.P .. 'serves:' .. node, served) end
  for _, task in ipairs(cjson.decode(tasks)) do redis.call('SADD', c.P .. 'tasks:' .. node, task) end
  redis.call('ZADD', c.P .. 'alive', c.uptime + ttl, node)
  if nodes.is_draining(c, node) then nodes.close(c, node) else nodes.open(c, node) end
  doorbells.rescore(c, node)
  nodes.wake_idle(c)
  nodes.agree_on_format(c)
  return 'registered'
end)

-- Bells of the node that are to be rung again, if there is work for it; else they are void. Those that this step could
-- not put into the node's queue.
local function overdue_bells(c, node)
  local waits = false
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes:' .. node)) do
    waits = waits or redis.call('EXISTS', c.P .. 'ready:' .. class) == 1
  end
  local left = {}
  for _, bell in ipairs(redis.call('ZRANGEBYSCORE', c.P .. 'rung:' .. node, '-inf', c.now, 'LIMIT', 0, 64)) do
    -- Again after as long as it has waited already, so that a busy node's queue does not fill with copies.
    local age = c.now - tonumber(string.match(bell, '^%d+'))
    if waits then
      redis.call('ZADD', c.P .. 'rung:' .. node, c.now + math.max(1000, age), bell)
      if not beside.put_bell(c, node, bell, redis.call('INCR', c.P .. 'bells')) then left[#left + 1] = bell end
    else
      redis.call('ZREM', c.P .. 'rung:' .. node, bell)
    end
  end
  return left
end

-- Is a result owed, or a parked job to be looked at?
local function are_errands_due(c, app)
  for _, kind in ipairs({'unsent:', 'parked:'}) do
    if redis.call('ZCOUNT', c.P .. kind .. app, '-inf', c.now) > 0 then return 1 end
  end
  return 0
end

-- node_beat: a node lives; its load; which of its bells are overdue, and whether its errands have something to do.
-- args node incarnation ttl times fields…
--   times: JSON {task: [runs, median in s]} of its jobs, '' = as told before; fields: names and values of node:<name>
--   that changed (load braked ordinary capacity ending)
-- returns {alive or unknown, overdue bells to publish, ms, due, busy, swept}; unknown = declared dead meanwhile,
--   register again; ms: for how long it has been given nothing, since it drains; -1 = it does not; due: 1 = its errands
--   are to look; busy: how many runners hold something; swept: ms since the last sweep; asked again: the bells are not
--   overdue any more
step.define('node_beat', {'allow-oom'}, function(c, args)
  local node, incarnation, ttl, times = unpack(args, 1, 4)
  local name = c.P .. 'node:' .. node
  if redis.call('HGET', name, 'incarnation') ~= incarnation then return {'unknown', {}, -1, 0, 0, 0} end
  if #args > 4 then redis.call('HSET', name, unpack(args, 5)) end
  if times ~= '' then pace.measure(c, node, times) end
  redis.call('ZADD', c.P .. 'alive', c.uptime + ttl, node)
  if nodes.is_draining(c, node) then nodes.close(c, node) end
  local overdue = overdue_bells(c, node)
  redis.call('HDEL', name, 'deaf')
  local deaf = nodes.fresh_bells(c, node) < redis.call('ZCARD', c.P .. 'rung:' .. node)
  if deaf then redis.call('HSET', name, 'deaf', 1) end
  doorbells.rescore(c, node)
  local closing = redis.call('HGET', name, 'closing')
  local due = are_errands_due(c, redis.call('HGET', name, 'app') or '')
  local swept = c.now - (redis.call('HGET', c.P .. 'swept', 'last') or 0)
  local busy = redis.call('HLEN', c.P .. 'work:' .. node)
  return {'alive', overdue, closing and c.now - closing or -1, due, busy, swept}
end)

-- node_drain: nothing new for this node, until it is undone; also for one of that name that comes later.
-- args node on why by
--   on: '1' = drain; '0' = undo it: whatever waits for such a node rings it
-- returns 1, or 0 when it was so already; asked again: 0
step.define('node_drain', {'allow-oom'}, function(c, args)
  local node, on, why, by = unpack(args)
  local changed
  if on == '1' then
    changed = redis.call('HSET', c.P .. 'drained', node, cjson.encode({why = why, by = by, at = c.wall}))
  else
    changed = redis.call('HDEL', c.P .. 'drained', node)
  end
  if redis.call('EXISTS', c.P .. 'node:' .. node) == 1 then
    if nodes.is_draining(c, node) then nodes.close(c, node) else nodes.open(c, node) end
    doorbells.rescore(c, node)
    nodes.wake_idle(c)
  end
  return changed
end)

-- node_leave: a node ends in good order; its bells are void, its work was handed back before.
-- args node incarnation
-- returns 1, or 0 where another worker of that name lives, or none did; asked again: 0
step.define('node_leave', {'allow-oom'}, function(c, args)
  local node, incarnation = unpack(args)
  if redis.call('HGET', c.P .. 'node:' .. node, 'incarnation') ~= incarnation then return 0 end
  nodes.forget(c, node)
  nodes.wake_idle(c)
  return 1
end)
