-- Nodes: their supervisors register them, send heartbeats, and remove them.

local KEPT, HELP, WAITS = 60000, 4000, 30000 -- ms; KEPT: core/supervisor/supervisor.py

step.define('node_register', {'allow-oom'}, function(c, node, incarnation, ttl, about, serves, tasks)
  local other = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation') or redis.call('GET', c.P .. 'gone:' .. node)
  if other and other ~= incarnation and tonumber(redis.call('ZSCORE', c.P .. 'alive', node) or '0') > c.uptime then
    return 'taken'
  end
  redis.call('SET', c.P .. 'format', record.FORMAT, 'NX')
  pace.measure(c, node, '')
  for _, kind in ipairs({'serves:', 'tasks:', 'node:', 'gone:'}) do redis.call('DEL', c.P .. kind .. node) end
  redis.call('PERSIST', c.P .. 'work:' .. node)
  nodes.find(c, node, incarnation)
  if other ~= incarnation then
    redis.call('DEL', c.P .. 'work:' .. node)
    redis.call('DEL', c.P .. 'rung:' .. node)
  end
  for field, value in pairs(cjson.decode(about)) do redis.call('HSET', c.P .. 'node:' .. node, field, value) end
  redis.call('HSET', c.P .. 'node:' .. node, 'incarnation', incarnation, 'since', c.wall)
  for _, served in ipairs(cjson.decode(serves)) do redis.call('SADD', c.P .. 'serves:' .. node, served) end
  for _, task in ipairs(cjson.decode(tasks)) do redis.call('SADD', c.P .. 'tasks:' .. node, task) end
  redis.call('ZADD', c.P .. 'alive', c.uptime + ttl, node)
  shares.part(c, node)
  if nodes.is_draining(c, node) then nodes.close(c, node) else nodes.open(c, node) end
  wakes.rescore(c, node)
  nodes.wake_idle(c)
  return 'registered'
end)

-- True if a ready job fits the node.
local function has_work(c, node)
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes:' .. node)) do
    if redis.call('EXISTS', c.P .. 'ready:' .. class) == 1 then return true end
  end
  return false
end

-- The unanswered wake-ups that the supervisor is to pass on itself, if a slot is free; without ready work they are
-- void. All come again once, then only one each second, the node's `probe`, so that a worker that stands still is not
-- flooded with copies. The others follow once the probe was answered.
local function wakes_to_repeat(c, node)
  local name, rung = c.P .. 'node:' .. node, c.P .. 'rung:' .. node
  local due = redis.call('ZRANGEBYSCORE', rung, '-inf', c.now, 'LIMIT', 0, 64)
  if not due[1] then return due end
  if not has_work(c, node) then return redis.call('ZREM', rung, unpack(due)) and {} end
  local capacity, ordinary, probe = unpack(redis.call('HMGET', name, 'capacity', 'ordinary', 'probe'))
  local occupied = redis.call('HLEN', c.P .. 'work:' .. node) + (tonumber(ordinary) or 0)
  if occupied >= (tonumber(capacity) or 0) then return {} end
  local at = probe and redis.call('ZSCORE', rung, probe)
  if at then return tonumber(at) <= c.now and {probe} or {} end
  redis.call('HSET', name, 'probe', due[1])
  return due
end

local function overdue_wakes(c, node)
  local overdue = wakes_to_repeat(c, node)
  for _, wake in ipairs(overdue) do redis.call('ZADD', c.P .. 'rung:' .. node, c.now + 1000, wake) end
  return overdue
end

-- True if jobs have waited at each beat for half a minute, and nobody has looked for as long how long they do.
local function waits_unseen(c)
  local waits, since = c.P .. 'waits', redis.call('GET', c.P .. 'waits')
  if redis.call('EXISTS', c.P .. 'ready-by-task', c.P .. 'contended', c.P .. 'paused') == 0 then
    if since then redis.call('DEL', waits) end
    return false
  end
  if not since then redis.call('SET', waits, c.now_text) end
  return since and c.now - (tonumber(since) or 0) >= WAITS and redis.call('EXISTS', c.P .. 'looked') == 0
end

-- When the oldest errand of an app was due: a result is owed, a parked job is to be looked at, an alert is to be
-- raised, or jobs wait. nil: none is.
local function due_since(c, app)
  local waits, since = waits_unseen(c)
  for _, kind in ipairs({'unsent:', 'parked:', 'troubles:'}) do
    local at = tonumber(redis.call('ZRANGE', c.P .. kind .. app, 0, 0, 'WITHSCORES')[2])
    if at and at <= c.now and at < (since or math.huge) then since = at end
  end
  return since or waits and c.now
end

-- 1 if this node is to do maintenance for its app. One node of the fleet does, for as long as there is some and for
-- KEPT after that. Others help once the oldest piece of it has waited for HELP, for 3 HELP, for 7 HELP, and so on: many
-- are of no use where a backend is away.
local function is_maintenance_due(c, app, node)
  local since, name = due_since(c, app), c.P .. 'errands:' .. app
  if not since then return 0 end
  redis.call('ZREMRANGEBYSCORE', name, '-inf', c.now)
  local others = redis.call('ZCARD', name)
  if 2 ^ others - 1 > (c.now - since) / HELP and not redis.call('ZSCORE', name, node) then return 0 end
  redis.call('ZADD', name, c.now + KEPT, node)
  redis.call('PEXPIRE', name, KEPT)
  return 1
end

-- Adds what the node's jobs took, unless it was added before and the reply was lost.
local function add_measures(c, name, measures)
  if redis.call('HGET', name, 'measured') == measures.of then return end
  redis.call('HSET', name, 'measured', measures.of)
  for field, number in pairs(measures.add) do
    redis.call('HINCRBY', c.P .. 'measures', field, base.text_of(number))
  end
end

step.define('node_beat', {'allow-oom'}, function(c, node, incarnation, ttl, times, measures, args, from)
  local name = c.P .. 'node:' .. node
  if redis.call('HGET', name, 'incarnation') ~= incarnation then return {'unknown', {}, -1, 0, 0, 0, 0} end
  if #args >= from then redis.call('HSET', name, unpack(args, from)) end
  if times ~= '' then pace.measure(c, node, times) end
  if measures ~= '' then add_measures(c, name, cjson.decode(measures)) end
  redis.call('ZADD', c.P .. 'alive', c.uptime + ttl, node)
  if nodes.is_draining(c, node) then nodes.close(c, node) end
  local overdue = overdue_wakes(c, node)
  redis.call('HDEL', name, 'deaf')
  local deaf = nodes.fresh_wakes(c, node) < redis.call('ZCARD', c.P .. 'rung:' .. node)
  if deaf then redis.call('HSET', name, 'deaf', 1) end
  wakes.rescore(c, node)
  local closing = redis.call('HGET', name, 'closing')
  local due = is_maintenance_due(c, redis.call('HGET', name, 'app') or '', node)
  local swept = c.now - (tonumber(redis.call('HGET', c.P .. 'swept', 'last')) or 0)
  local busy = redis.call('HLEN', c.P .. 'work:' .. node)
  return {'alive', overdue, closing and c.now - (tonumber(closing) or c.now) or -1, due, busy, swept, c.now}
end)

step.define('node_drain', {'allow-oom'}, function(c, node, on, act)
  local drained, changed = redis.call('HGET', c.P .. 'drained', node), 0
  act = audit.act(c, act)
  if on and not audit.is_same(drained, act) then
    changed = redis.call('HSET', c.P .. 'drained', node, audit.kept(act))
    audit.note(c, act, 'drain', 'node', node, drained and 'drained' or 'open', 'drained')
  elseif not on and drained then
    changed = redis.call('HDEL', c.P .. 'drained', node)
    audit.note(c, act, 'undrain', 'node', node, 'drained', 'open')
  end
  if redis.call('EXISTS', c.P .. 'node:' .. node) == 1 then
    if nodes.is_draining(c, node) then nodes.close(c, node) else nodes.open(c, node) end
    wakes.rescore(c, node)
    nodes.wake_idle(c)
  end
  return changed
end)

step.define('node_leave', {'allow-oom'}, function(c, node, incarnation, lost)
  if redis.call('HGET', c.P .. 'node:' .. node, 'incarnation') ~= incarnation then return 0 end
  if lost ~= '' then nodes.lose(c, node, cjson.decode(lost)) end
  nodes.forget(c, node)
  nodes.wake_idle(c)
  return 1
end)
