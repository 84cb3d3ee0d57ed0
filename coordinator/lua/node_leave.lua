-- node_leave: a node ends in good order; its bells are void, its work was handed back before.
-- KEYS prefix
-- ARGV node incarnation
-- returns {rung}
-- include node
local node, incarnation = unpack(ARGV)
if redis.call('HGET', P .. 'node:' .. node, 'incarnation') == incarnation then
  forget(node)
  wake_idle()
end
return {rung}
