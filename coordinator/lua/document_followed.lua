-- document_followed: the permanent store has an entry as it was at a version.
-- KEYS prefix
-- ARGV doc entry version
-- returns 1, or 0 where it changed since, or was known
local name, entry, version = KEYS[1] .. 'behind:' .. ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', name, entry) ~= version then return 0 end
return redis.call('HDEL', name, entry)
