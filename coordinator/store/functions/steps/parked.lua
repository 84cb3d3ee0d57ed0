-- Parked jobs wait for their sub-results; the wardens of their app look at those.

-- child_began: a worker begins a sub-task of a job, whose message it has acknowledged. The note lasts for two days.
-- args parent child node incarnation
-- returns 1, or 0 when the job is over: nothing was noted; asked again: the same
step.define('child_began', {'allow-oom'}, function(c, args)
  local parent, child, node, incarnation = unpack(args)
  local state = redis.call('HGET', c.P .. 'job:' .. parent, 'state')
  if not state or states.TERMINAL[state] then return 0 end
  redis.call('HSET', c.P .. 'begun:' .. parent, child, incarnation .. ' ' .. node)
  redis.call('PEXPIRE', c.P .. 'begun:' .. parent, 172800000)
  return 1
end)

-- child_ended: a sub-task of a job is over; where the job is parked, its app's wardens look at once.
-- args parent child
-- returns 1 when it is parked, else 0; asked again: the same
step.define('child_ended', {'allow-oom'}, function(c, args)
  local parent, child = unpack(args)
  redis.call('HDEL', c.P .. 'begun:' .. parent, child)
  return states.look_at(c, parent) and 1 or 0
end)

-- children_lost: the sub-tasks that were begun in a life of a worker that is over for certain: its node was declared
-- dead or has left, or another worker has its name.
-- args parent children…
-- returns their ids; asked again: the same
step.define('children_lost', {'allow-oom'}, function(c, args)
  local lost = {}
  for i = 2, #args do
    local note = redis.call('HGET', c.P .. 'begun:' .. args[1], args[i])
    local incarnation, node = string.match(note or '', '^(%S+) (.*)$')
    if incarnation then
      local lives = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation')
      local gone = redis.call('GET', c.P .. 'gone:' .. node) == incarnation
      if gone or lives and lives ~= incarnation then lost[#lost + 1] = args[i] end
    end
  end
  return lost
end)

-- parked_take: parked jobs of an app whose sub-results should be looked at now.
-- args app pause
--   pause: ms until the next look, unless the end of a sub-result is told before
-- returns {id, last, handles, what} for each; what: 0 = look, 1 = its time limit is over, 2 = the attempt is: nobody
--   waits for them; asked again: each once in `pause`
step.define('parked_take', {'allow-oom'}, function(c, args)
  local app, pause = unpack(args)
  local parked, found = c.P .. 'parked:' .. app, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', parked, '-inf', c.now, 'LIMIT', 0, 100)) do
    local job = record.read(c, id)
    local handles, till, stale = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'handles', 'till', 'stale'))
    if job and stale then
      redis.call('HDEL', c.P .. 'job:' .. id, 'stale')
      found[#found + 1] = {id, '', stale, 2}
    end
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
--   last: the token under which it parked; kind, detail, delay, most, class, task, limit: as of job_finish; also of
--   kind lost: a sub-result was lost with its node, which counts as a loss
-- returns the state; '' = it is not parked under that token any more, nothing was done; asked again: ''
step.define('job_unpark', {'allow-oom'}, function(c, args)
  local id, last, kind, detail, delay, most, class, task, limit = unpack(args)
  local job = record.read(c, id)
  if not job or job.state ~= 'parked' or job.last ~= last then return '' end
  states.leave(c, id, job)
  redis.call('HDEL', c.P .. 'job:' .. id, 'handles')
  redis.call('DEL', c.P .. 'begun:' .. id)
  return settle.conclude(c, id, job, kind, detail, delay, most, {class = class, task = task, limit = limit})
end)
