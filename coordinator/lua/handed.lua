-- Shared: what a runner was handed, once more.
-- include base

local function handed(id)
  local name = P .. 'job:' .. id
  local reply = redis.call('HMGET', name, 'keys', 'task', 'spec', 'attempt', 'losses', 'fence', 'limits', 'unite', 'class',
    'tell')
  table.insert(reply, 1, id)
  reply[#reply + 1] = redis.call('HMGET', name, 'phase', 'step', 'value', 'forgiven', 'error')
  return reply
end
