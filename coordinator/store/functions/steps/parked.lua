-- Parked jobs wait for their sub-results; the wardens of their app look at those.

-- child_ended: a sub-task of a job is over; where the job is parked, its app's wardens look at once.
-- args parent
-- returns 1 when it is parked, else 0; asked again: the same
step.define('child_ended', {'allow-oom'}, function(c, args)
  local parent = unpack(args)
  return states.look_at(c, parent) and 1 or 0
end)

-- parked_take: parked jobs of an app whose sub-results should be looked at now.
-- args app pause
--   pause: ms until the next look, unless the end of a sub-result is told before
-- returns {id, last, handles, what} for each; what: 0 = look, 1 = its time limit is over, 2 = the job is over; asked
--   again: each once in `pause`
step.define('parked_take', {'allow-oom'}, function(c, args)
  local app, pause = unpack(args)
  local parked, found = c.P .. 'parked:' .. app, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', parked, '-inf', c.now, 'LIMIT', 0, 100)) do
    local job = record.read(c, id)
    local handles, till = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'handles', 'till'))
    if job and job.state == 'parked' then
      till = tonumber(till)
      redis.call('ZADD', parked, till > c.now and math.min(c.now + pause, till) or c.now + pause, id)
      found[#found + 1] = {id, job.last, handles, till > 0 and till <= c.now and 1 or 0}
    else
      redis.call('ZREM', parked, id)
      if job and handles then
        redis.call('HDEL', c.P .. 'job:' .. id, 'handles')
        found[#found + 1] = {id, '', handles, 2}
      end
    end
  end
  return found
end)

-- job_unpark: all sub-results of a parked job ended (or its time did): as an attempt ends, so does it.
-- args id last kind detail delay most class task limit
--   last: the token under which it parked; kind, detail, delay, most, class, task, limit: as of job_finish
-- returns the state; '' = it is not parked under that token any more, nothing was done; asked again: ''
step.define('job_unpark', {'allow-oom'}, function(c, args)
  local id, last, kind, detail, delay, most, class, task, limit = unpack(args)
  local job = record.read(c, id)
  if not job or job.state ~= 'parked' or job.last ~= last then return '' end
  states.leave(c, id, job)
  redis.call('HDEL', c.P .. 'job:' .. id, 'handles')
  return settle.conclude(c, id, job, kind, detail, delay, most, {class = class, task = task, limit = limit})
end)
