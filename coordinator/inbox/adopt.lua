-- Takes over what a dead node had taken, tags included.
-- KEYS takers from to
-- ARGV dead node
-- returns how many
local number = 0
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('SADD', KEYS[1], ARGV[2]) end
while redis.call('LMOVE', KEYS[2], KEYS[3], 'LEFT', 'RIGHT') do number = number + 1 end
redis.call('SREM', KEYS[1], ARGV[1])
return number
