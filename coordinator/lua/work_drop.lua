-- work_drop: a runner's entry that outlived its process.
-- KEYS prefix
-- ARGV node runner token
-- returns 1 when it was there and is gone, else 0
-- include ring
local node, runner, token = unpack(ARGV)
local mine = redis.call('HGET', P .. 'work:' .. node, runner)
if not mine or string.sub(mine, 1, #token) ~= token then return 0 end
redis.call('HDEL', P .. 'work:' .. node, runner)
rescore(node)
return 1
