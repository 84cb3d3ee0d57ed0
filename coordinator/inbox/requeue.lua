-- Takes a refused request from its list, and puts a message into the queue where there is one.
-- KEYS letters queue
-- ARGV letter message
-- returns 1, or 0 = somebody else took it, nothing was done
if not redis.call('LPOS', KEYS[1], ARGV[1]) then return 0 end
if ARGV[2] then redis.call('LPUSH', KEYS[2], ARGV[2]) end
return redis.call('LREM', KEYS[1], 1, ARGV[1])
