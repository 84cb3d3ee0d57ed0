-- job_progress: how far a running job is.
-- KEYS prefix
-- ARGV id token progress
-- returns 1, or 0 when the token is not the job's any more: nothing was written
local P = KEYS[1]
local id, token, progress = unpack(ARGV)
if redis.call('HGET', P .. 'job:' .. id, 'token') ~= token then return 0 end
redis.call('HSET', P .. 'job:' .. id, 'progress', progress)
return 1
