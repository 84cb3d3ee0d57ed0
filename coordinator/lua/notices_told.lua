-- notices_told: results and links of these jobs were sent.
-- KEYS prefix
-- ARGV app ids…
-- returns how many were owed
local P = KEYS[1]
return redis.call('ZREM', P .. 'unsent:' .. ARGV[1], unpack(ARGV, 2))
