-- node_beat: a node lives; its load; which of its bells are overdue.
-- KEYS prefix
-- ARGV node incarnation ttl fields…
--   fields: names and values of node:<name> that changed (load braked ordinary capacity ending events)
-- returns {'alive' or 'unknown', overdue bells, ms}; unknown = declared dead meanwhile, register again; ms: for how long
--   it has been given nothing, since it drains; -1 = it does not
-- include drain
-- include full
local node, incarnation, ttl = unpack(ARGV, 1, 3)
if redis.call('HGET', P .. 'node:' .. node, 'incarnation') ~= incarnation then return {'unknown', {}, -1} end
though_full()
if #ARGV > 3 then redis.call('HSET', P .. 'node:' .. node, unpack(ARGV, 4)) end
redis.call('ZADD', P .. 'alive', now + ttl, node)
if is_draining(node) then close(node) end
local ready = false
for _, class in ipairs(redis.call('SMEMBERS', P .. 'classes:' .. node)) do
  ready = ready or redis.call('EXISTS', P .. 'ready:' .. class) == 1
end
local overdue = redis.call('ZRANGEBYSCORE', P .. 'rung:' .. node, '-inf', now, 'LIMIT', 0, 64)
for _, bell in ipairs(overdue) do
  -- Again after as long as it has waited already, so that a busy node's queue does not fill with copies.
  local age = now - tonumber(string.match(bell, '^%d+'))
  if ready then
    redis.call('ZADD', P .. 'rung:' .. node, now + math.max(1000, age), bell)
  else
    redis.call('ZREM', P .. 'rung:' .. node, bell)
  end
end
redis.call('HDEL', P .. 'node:' .. node, 'deaf')
if fresh_bells(node) < redis.call('ZCARD', P .. 'rung:' .. node) then redis.call('HSET', P .. 'node:' .. node, 'deaf', 1) end
rescore(node)
local closing = redis.call('HGET', P .. 'node:' .. node, 'closing')
return {'alive', ready and overdue or {}, closing and now - closing or -1}
