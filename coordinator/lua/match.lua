-- Shared: does a node fit a class?
-- include base

-- A class without an app (a plain client's) fits nodes of any app that knows the task. A node that drains fits none,
-- not even one that is seen for the first time.
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
