-- notices_take: jobs of an app that are over and whose results and links nobody has sent yet.
-- KEYS prefix
-- ARGV app
-- returns ids; each is offered again after 10 s unless it is told
local P = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local unsent = P .. 'unsent:' .. ARGV[1]
local ids = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', unsent, '-inf', now, 'LIMIT', 0, 100)) do
  if redis.call('EXISTS', P .. 'job:' .. id) == 1 then
    redis.call('ZADD', unsent, now + 10000, id)
    ids[#ids + 1] = id
  else
    redis.call('ZREM', unsent, id)
  end
end
return ids
