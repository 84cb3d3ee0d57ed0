-- runner_take: a doorbell's runner begins: its bell is answered, it is given the next ready job.
-- KEYS prefix
-- ARGV node incarnation runner bell token ttl
--   incarnation: of the worker; another one of the same name is given nothing, and leaves the bell as it is
-- returns {job or false, events, rung}; asked again with the same token: the same job
-- include take
local node, incarnation, runner, bell, token, ttl = unpack(ARGV)
local known = redis.call('HGET', P .. 'node:' .. node, 'incarnation')
if known and known ~= incarnation then return {false, '0', rung} end
redis.call('ZREM', P .. 'rung:' .. node, bell)
local job = again_or_take(node, runner, token, ttl, true)
ring_readied(2000, job and job[CLASS])
return {job, redis.call('HGET', P .. 'node:' .. node, 'events') or '0', rung}
