-- Shared: classes, app, queue and labels, and which nodes fit them.
-- include ring

-- A class without an app (a plain client's) fits nodes of any app that knows the task. A node that drains fits none,
-- not even one that is seen for the first time.
-- A class seen for the first time learns which living nodes fit it; a node that registers learns its classes.
local function match(node, class)
  local app, queue, labels = string.match(class, '^([^\n]*)\n([^\n]*)(.*)$')
  local serves = P .. 'serves:' .. node
  local good = redis.call('HGET', P .. 'node:' .. node, 'closed') ~= '1'
    and (app == '' or redis.call('SISMEMBER', serves, 'app ' .. app) == 1)
    and redis.call('SISMEMBER', serves, 'queue ' .. queue) == 1
  for label in string.gmatch(labels, '[^\n]+') do
    good = good and redis.call('SISMEMBER', serves, 'label ' .. label) == 1
  end
  redis.call(good and 'SADD' or 'SREM', P .. 'fits:' .. class, node)
  redis.call(good and 'SADD' or 'SREM', P .. 'classes:' .. node, class)
end

local function know(class)
  if redis.call('SADD', P .. 'classes', class) == 1 then
    for _, node in ipairs(redis.call('ZRANGE', P .. 'alive', 0, -1)) do match(node, class) end
  end
end

local function create(class)
  know(class)
  redis.call('HINCRBY', P .. 'counts', 'created', '1')
end
