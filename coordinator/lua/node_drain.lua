-- node_drain: nothing new for this node, until it is undone; also for one of that name that comes later.
-- KEYS prefix
-- ARGV node on why by
--   on: '1' = drain; '0' = undo it: whatever waits for such a node rings it
-- returns {changed, rung}; changed: 0 = it was so already
-- include drain
local node, on, why, by = unpack(ARGV)
local changed
if on == '1' then
  changed = redis.call('HSET', P .. 'drained', node, cjson.encode({why = why, by = by, at = now}))
else
  changed = redis.call('HDEL', P .. 'drained', node)
end
if redis.call('EXISTS', P .. 'node:' .. node) == 1 then
  if is_draining(node) then close(node) else open(node) end
  rescore(node)
  wake_idle()
end
return {changed, rung}
