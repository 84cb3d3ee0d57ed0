-- tick_done: the instant taken was sent, or never can be; the next one may be taken.
-- KEYS prefix
-- ARGV name instant token
-- returns 1, or 0 when another beat had taken it over; asked again: 0, and nothing changes
local P = KEYS[1]
local name, instant, token = unpack(ARGV)
local record = P .. 'tick:' .. name
local held = redis.call('HMGET', record, 'unsent', 'token')
if held[1] ~= instant or held[2] ~= token then return 0 end
redis.call('HDEL', record, 'unsent', 'token', 'till')
redis.call('ZREM', P .. 'schedule-unsent', name)
return 1
