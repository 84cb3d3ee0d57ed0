-- Puts a refused message aside, then removes it from the node's own list. The last letters are kept.
-- KEYS own dead
-- ARGV entry letter most
-- returns 1, or 0 = it was not there any more, nothing was done
if not redis.call('LPOS', KEYS[1], ARGV[1]) then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('LTRIM', KEYS[2], -ARGV[3], -1)
return redis.call('LREM', KEYS[1], 1, ARGV[1])
