-- runner_condemn: from here the attempt's outcome is refused and its runner is given nothing more, so that stopping
-- its process can hit no other job.
-- KEYS prefix
-- ARGV node runner token id
-- returns 1, or 0 when the runner has gone on to something else
local P = KEYS[1]
local node, runner, token, id = unpack(ARGV)
local mine = redis.call('HGET', P .. 'work:' .. node, runner)
if not mine or string.sub(mine, 1, #token) ~= token then return 0 end
if redis.call('HGET', P .. 'job:' .. id, 'token') ~= token then return 0 end
redis.call('HDEL', P .. 'job:' .. id, 'condemned') -- so that a full Redis does not refuse the next line
redis.call('HSET', P .. 'job:' .. id, 'condemned', token, 'seldom', 1)
return 1
