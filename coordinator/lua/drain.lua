-- Shared: nodes that are given nothing new.
-- include match
-- include node

-- Nothing new is given to it; what it has at work may end.
local function close(node)
  for _, class in ipairs(redis.call('SMEMBERS', P .. 'classes:' .. node)) do
    redis.call('SREM', P .. 'fits:' .. class, node)
    redis.call('SREM', P .. 'classes:' .. node, class)
  end
  redis.call('HSETNX', P .. 'node:' .. node, 'closing', now)
  redis.call('HSET', P .. 'node:' .. node, 'closed', 1)
end

local function open(node)
  redis.call('HDEL', P .. 'node:' .. node, 'closed', 'closing')
  for _, class in ipairs(redis.call('SMEMBERS', P .. 'classes')) do match(node, class) end
end

-- By its worker, which ends, or by an operator.
local function is_draining(node)
  return redis.call('HGET', P .. 'node:' .. node, 'ending') == '1' or redis.call('HEXISTS', P .. 'drained', node) == 1
end
