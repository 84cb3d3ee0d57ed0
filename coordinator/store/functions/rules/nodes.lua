-- Nodes that come, go, and are given nothing new.
local nodes = {}

-- The jobs that its processes hold stay noted for a while: it may only have been silent, and come back.
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
  for _, kind in ipairs({'classes:', 'serves:', 'tasks:', 'rung:', 'node:', 'chosen:'}) do
    redis.call('DEL', c.P .. kind .. node)
  end
end

-- From when on all living nodes understand a format, records are written in it.
function nodes.agree_on_format(c)
  if tonumber(redis.call('GET', c.P .. 'format') or 1) >= record.FORMAT then return end
  for _, node in ipairs(redis.call('ZRANGE', c.P .. 'alive', 0, -1)) do
    if tonumber(redis.call('HGET', c.P .. 'node:' .. node, 'format') or 1) < record.FORMAT then return end
  end
  redis.call('SET', c.P .. 'format', record.FORMAT)
end

-- Nothing new is given to it; what it has at work may end.
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

-- By its worker, which ends, or by an operator.
function nodes.is_draining(c, node)
  return redis.call('HGET', c.P .. 'node:' .. node, 'ending') == '1'
    or redis.call('HEXISTS', c.P .. 'drained', node) == 1
end

-- The task of the first ready job that some living node knows. A job that none knows goes behind, so as not to hide it.
local function ready_task(c, class, living)
  for _ = 1, math.min(ready.count(c, class, 64), 64) do
    local group = redis.call('LINDEX', c.P .. 'ready:' .. class, 0)
    local id = redis.call('ZRANGE', ready.group_list(c, class, group), 0, 0)[1]
    local task = redis.call('HGET', c.P .. 'job:' .. id, 'task') or ''
    for _, node in ipairs(living) do
      if redis.call('SISMEMBER', c.P .. 'tasks:' .. node, task) == 1 then return task end
    end
    local _, _, _, score = ready.shift(c, class)
    ready.put_behind(c, id, class, group, score)
  end
end

-- Is there a living node that may run this? Nearly always any one of those that fit has the task.
function nodes.can_run(c, class, task)
  local any = redis.call('SRANDMEMBER', c.P .. 'fits:' .. class)
  if not any then return false end
  if redis.call('SISMEMBER', c.P .. 'tasks:' .. any, task) == 1 then return true end
  for _, node in ipairs(redis.call('SMEMBERS', c.P .. 'fits:' .. class)) do
    if redis.call('SISMEMBER', c.P .. 'tasks:' .. node, task) == 1 then return true end
  end
  return false
end

-- Bells that were rung less than 1 s ago will be answered; a node that left an older one may never answer.
function nodes.fresh_bells(c, node)
  local fresh = 0
  for _, bell in ipairs(redis.call('ZRANGE', c.P .. 'rung:' .. node, 0, -1)) do
    if c.now - tonumber(string.match(bell, '^%d+')) < 1000 then fresh = fresh + 1 end
  end
  return fresh
end

-- Ready work that no bell is on its way for, beside nodes with room: rings them.
function nodes.wake_idle(c)
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'ready')) do
    local idle, living = ready.count(c, class, 64), redis.call('SMEMBERS', c.P .. 'fits:' .. class)
    for _, node in ipairs(living) do idle = idle - nodes.fresh_bells(c, node) end
    local task = idle > 0 and ready_task(c, class, living)
    while task and idle > 0 and doorbells.ring(c, class, task) do idle = idle - 1 end
  end
end

return nodes
