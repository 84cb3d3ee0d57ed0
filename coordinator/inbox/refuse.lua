-- Puts a refused message aside, then settles it. The last letters are kept.
-- KEYS taken dead
-- ARGV entry letter most
-- returns 1, or 0 = it was settled already, nothing was done
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('LTRIM', KEYS[2], -ARGV[3], -1)
return redis.call('ZREM', KEYS[1], ARGV[1])
