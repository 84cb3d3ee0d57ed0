-- parked_take: parked jobs of an app whose sub-results should be looked at now.
-- KEYS prefix
-- ARGV app pause
--   pause: ms until the next look, unless the end of a sub-result is told before
-- returns {id, last, handles, what} for each; what: 0 = look, 1 = its time limit is over, 2 = the job is over
-- include full
-- include record
local app, pause = unpack(ARGV)
local parked, found = P .. 'parked:' .. app, {}
though_full()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', parked, '-inf', now, 'LIMIT', 0, 100)) do
  local job = read(id)
  local handles, till = unpack(redis.call('HMGET', P .. 'job:' .. id, 'handles', 'till'))
  if job and job.state == 'parked' then
    till = tonumber(till)
    redis.call('ZADD', parked, till > now and math.min(now + pause, till) or now + pause, id)
    found[#found + 1] = {id, job.last, handles, till > 0 and till <= now and 1 or 0}
  else
    redis.call('ZREM', parked, id)
    if job and handles then
      redis.call('HDEL', P .. 'job:' .. id, 'handles')
      found[#found + 1] = {id, '', handles, 2}
    end
  end
end
return found
