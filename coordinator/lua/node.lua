-- Shared: nodes that come and go.
-- include class
-- include drop
-- include ring
-- include turns

-- What its processes hold stays noted for a while: it may only have been silent, and come back.
local function forget(node)
  local incarnation = redis.call('HGET', P .. 'node:' .. node, 'incarnation')
  if incarnation then redis.call('SET', P .. 'gone:' .. node, incarnation, 'PX', 3600000) end
  redis.call('PEXPIRE', P .. 'work:' .. node, 3600000)
  for _, class in ipairs(redis.call('SMEMBERS', P .. 'classes:' .. node)) do
    redis.call('SREM', P .. 'fits:' .. class, node)
  end
  redis.call('ZREM', P .. 'alive', node)
  redis.call('ZREM', P .. 'room', node)
  for _, kind in ipairs({'classes:', 'serves:', 'tasks:', 'rung:', 'node:', 'chosen:'}) do
    redis.call('DEL', P .. kind .. node)
  end
end

-- The task of the first ready job that some living node knows; whoever none knows goes behind, so as not to hide it.
local function ready_task(class, nodes)
  for _ = 1, math.min(count_ready(class, 64), 64) do
    local group = redis.call('LINDEX', P .. 'ready:' .. class, 0)
    local id = redis.call('LINDEX', group_list(class, group), 0)
    local task = redis.call('HGET', P .. 'job:' .. id, 'task') or ''
    for _, node in ipairs(nodes) do
      if redis.call('SISMEMBER', P .. 'tasks:' .. node, task) == 1 then return task end
    end
    shift(class)
    put(id, class, group)
  end
end

-- Bells that were rung less than 1 s ago will be answered; who did not answer an older one may never.
local function fresh_bells(node)
  local fresh = 0
  for _, bell in ipairs(redis.call('ZRANGE', P .. 'rung:' .. node, 0, -1)) do
    if now - tonumber(string.match(bell, '^%d+')) < 1000 then fresh = fresh + 1 end
  end
  return fresh
end

-- Ready work that no bell is on its way for, beside nodes with room: ring them.
local function wake_idle()
  for _, class in ipairs(redis.call('SMEMBERS', P .. 'classes')) do
    local idle = count_ready(class, 64)
    if idle > 0 then
      local nodes = redis.call('SMEMBERS', P .. 'fits:' .. class)
      for _, node in ipairs(nodes) do idle = idle - fresh_bells(node) end
      local task, before = idle > 0 and ready_task(class, nodes), -1
      while task and idle > 0 and #rung > before do
        before = #rung
        ring(class, task, 2000)
        idle = idle - 1
      end
    end
  end
end
