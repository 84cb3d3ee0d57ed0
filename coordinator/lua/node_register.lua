-- node_register: a node says who it is and what it serves; whatever waited for such a node wakes it.
-- KEYS prefix
-- ARGV node incarnation ttl about serves tasks
--   about: JSON object, fields of node:<name>, among them app, capacity, ordinary, load; serves: JSON list of
--   'app …' | 'queue …' | 'label …'; tasks: JSON list of names
-- returns {'registered' or 'taken', rung}; taken = another living worker has this name
-- include drain
local node, incarnation, ttl = unpack(ARGV, 1, 3)
local other = redis.call('HGET', P .. 'node:' .. node, 'incarnation') or redis.call('GET', P .. 'gone:' .. node)
if other and other ~= incarnation and tonumber(redis.call('ZSCORE', P .. 'alive', node) or '0') > now then
  return {'taken', rung}
end
for _, kind in ipairs({'serves:', 'tasks:', 'node:', 'gone:'}) do redis.call('DEL', P .. kind .. node) end
redis.call('PERSIST', P .. 'work:' .. node)
if other ~= incarnation then
  redis.call('DEL', P .. 'work:' .. node)
  redis.call('DEL', P .. 'rung:' .. node)
end
for field, value in pairs(cjson.decode(ARGV[4])) do redis.call('HSET', P .. 'node:' .. node, field, value) end
redis.call('HSET', P .. 'node:' .. node, 'incarnation', incarnation, 'since', now)
for _, what in ipairs(cjson.decode(ARGV[5])) do redis.call('SADD', P .. 'serves:' .. node, what) end
for _, task in ipairs(cjson.decode(ARGV[6])) do redis.call('SADD', P .. 'tasks:' .. node, task) end
redis.call('ZADD', P .. 'alive', now + ttl, node)
if is_draining(node) then close(node) else open(node) end
rescore(node)
wake_idle()
return {'registered', rung}
