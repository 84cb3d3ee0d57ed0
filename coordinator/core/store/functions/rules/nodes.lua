-- Nodes: removing, draining, and waking them.
local nodes = {}

local LOST, NAMED = 3600000, 20 -- ms for which a lost node is remembered; jobs that its entry names

-- Remembers a node that ended without leaving in order, and the ids of the jobs that it held then, for an hour.
function nodes.lose(c, node, held)
  local name = c.P .. 'lost-nodes'
  local incarnation, host, app = unpack(redis.call('HMGET', c.P .. 'node:' .. node, 'incarnation', 'host', 'app'))
  local known = redis.call('HGETALL', name)
  for i = 1, #known, 2 do
    if (tonumber(string.match(known[i + 1], '^%d+')) or 0) < c.wall - LOST then redis.call('HDEL', name, known[i]) end
  end
  table.sort(held)
  local jobs = table.concat(held, '\n', 1, math.min(#held, NAMED)) -- cjson makes an object of an empty list
  local lost = cjson.encode({host = host or '', app = app or '', count = #held, jobs = jobs})
  redis.call('HSET', name, node, table.concat({base.text_of(c.wall), incarnation or '', lost}, ' '))
  history.tally(c, 'nodes_lost')
end

-- Forgets the loss of a node that was only silent.
function nodes.find(c, node, incarnation)
  local lost = redis.call('HGET', c.P .. 'lost-nodes', node)
  if lost and string.match(lost, '^%S* (%S*) ') == incarnation then redis.call('HDEL', c.P .. 'lost-nodes', node) end
end

-- The ids of the jobs that the runners of a node hold.
function nodes.held(c, node)
  local held = {}
  for _, value in ipairs(redis.call('HVALS', c.P .. 'work:' .. node)) do
    held[#held + 1] = string.match(value, '^%S+ %S+ (.*)$')
  end
  return held
end

-- Removes a dead node. The claims of its processes stay noted for a while, in case it was only silent and comes back.
function nodes.forget(c, node)
  local incarnation = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation')
  if incarnation then redis.call('SET', c.P .. 'gone:' .. node, incarnation, 'PX', 3600000) end
  redis.call('PEXPIRE', c.P .. 'work:' .. node, 3600000)
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes:' .. node)) do
    redis.call('SREM', c.P .. 'fits:' .. class, node)
  end
  pace.measure(c, node, '')
  redis.call('ZREM', c.P .. 'alive', node)
  redis.call('ZREM', c.P .. 'room', node)
  for _, kind in ipairs({'classes:', 'serves:', 'tasks:', 'rung:', 'node:'}) do
    redis.call('DEL', c.P .. kind .. node)
  end
end

-- Drains a node: it gets nothing new, and its running jobs may end.
function nodes.close(c, node)
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes:' .. node)) do
    redis.call('SREM', c.P .. 'fits:' .. class, node)
    redis.call('SREM', c.P .. 'classes:' .. node, class)
  end
  redis.call('HSETNX', c.P .. 'node:' .. node, 'closing', c.now)
  redis.call('HSET', c.P .. 'node:' .. node, 'closed', 1)
end

function nodes.open(c, node)
  redis.call('HDEL', c.P .. 'node:' .. node, 'closed', 'closing')
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes')) do classes.match(c, node, class) end
end

-- True if the node's worker, which ends, or an operator drains it.
function nodes.is_draining(c, node)
  return redis.call('HGET', c.P .. 'node:' .. node, 'ending') == '1'
    or redis.call('HEXISTS', c.P .. 'drained', node) == 1
end

-- The task of the first ready job that a living node has. Jobs whose task no node has go to the back.
local function ready_task(c, class, living)
  for _ = 1, math.min(ready.count(c, class, 64), 64) do
    local group = redis.call('ZRANGE', c.P .. 'ready:' .. class, 0, 0)[1]
    local id = redis.call('ZRANGE', ready.group_list(c, class, group), 0, 0)[1]
    local task = id and redis.call('HGET', c.P .. 'job:' .. id, 'task') or ''
    for _, node in ipairs(living) do
      if id and redis.call('SISMEMBER', c.P .. 'tasks:' .. node, task) == 1 then return task end
    end
    local _, _, score = ready.shift(c, class) -- without a job, as half a step in a torn file leaves it, the group goes
    if id then ready.put_behind(c, id, class, group, score) end
  end
end

-- Counts the wake-ups that are younger than 1 s. The node will answer those; an older one it may never answer, nor what
-- is none.
function nodes.fresh_wakes(c, node)
  local fresh = 0
  for _, wake in ipairs(redis.call('ZRANGE', c.P .. 'rung:' .. node, 0, -1)) do
    if c.now - tonumber(string.match(wake, '^%d+') or 0) < 1000 then fresh = fresh + 1 end
  end
  return fresh
end

-- Wakes nodes with room, one for each ready job for which no wake-up is on its way.
function nodes.wake_idle(c)
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'ready')) do
    local idle, living = ready.count(c, class, 64), redis.call('SMEMBERS', c.P .. 'fits:' .. class)
    for _, node in ipairs(living) do idle = idle - nodes.fresh_wakes(c, node) end
    local task = idle > 0 and living[1] and ready_task(c, class, living)
    while task and idle > 0 and wakes.wake_best(c, class, task) do idle = idle - 1 end
  end
end

return nodes
