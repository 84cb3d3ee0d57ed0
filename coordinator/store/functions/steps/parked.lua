-- Parked jobs: they wait for sub-results, which the wardens of their app watch.

local TWO_DAYS = 172800000 -- ms that notes of sub-tasks last

-- child_began: notes that a worker begins a sub-task of a job. Its message may be repeated, after its attempt ended.
-- args parent child fence node incarnation
--   fence: of the attempt that published it
-- returns 1; 0 = the job is over, nothing was noted; -1 = its attempt ended without it: it must not run;
--   asked again: the same
step.define('child_began', {'allow-oom'}, function(c, args)
  local parent, child, fence, node, incarnation = unpack(args)
  local begun = c.P .. 'begun:' .. parent
  local noted, life = string.match(redis.call('HGET', begun, child) or '', '^(%d+)(.*)$')
  noted = tonumber(noted) or -1
  if noted > tonumber(fence) or noted == tonumber(fence) and life == '' then return -1 end
  local state = redis.call('HGET', c.P .. 'job:' .. parent, 'state')
  if not state or states.TERMINAL[state] then return 0 end
  redis.call('HSET', begun, child, fence .. ' ' .. incarnation .. ' ' .. node)
  redis.call('PEXPIRE', begun, TWO_DAYS)
  return 1
end)

-- children_over: notes that an attempt ends without these sub-tasks. Those that were begun do not run again.
-- args parent children…
-- returns 0; asked again: the same
step.define('children_over', {'allow-oom'}, function(c, args)
  local begun = c.P .. 'begun:' .. args[1]
  for i = 2, #args do
    local fence = string.match(redis.call('HGET', begun, args[i]) or '', '^%d+')
    if fence then redis.call('HSET', begun, args[i], fence) end
  end
  return 0
end)

-- child_ended: notes that a sub-task of a job is over; if the job is parked, its app's wardens look at once.
-- args parent child
-- returns 1 if it is parked, else 0; asked again: the same
step.define('child_ended', {'allow-oom'}, function(c, args)
  local parent, child = unpack(args)
  local note = redis.call('HGET', c.P .. 'begun:' .. parent, child)
  if note and string.find(note, ' ', 1, true) then redis.call('HDEL', c.P .. 'begun:' .. parent, child) end
  return states.look_at(c, parent) and 1 or 0
end)

-- children_lost: finds the sub-tasks that were begun by a worker that is certainly gone: its node was declared dead or
-- has left, or another worker has its name.
-- args parent children…
-- returns their ids; asked again: the same
step.define('children_lost', {'allow-oom'}, function(c, args)
  local lost = {}
  for i = 2, #args do
    local note = redis.call('HGET', c.P .. 'begun:' .. args[1], args[i])
    local incarnation, node = string.match(note or '', '^%d+ (%S+) (.*)$')
    if incarnation then
      local lives = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation')
      local gone = redis.call('GET', c.P .. 'gone:' .. node) == incarnation
      if gone or lives and lives ~= incarnation then lost[#lost + 1] = args[i] end
    end
  end
  return lost
end)

-- parked_take: takes the parked jobs of an app whose sub-results are due for a look.
-- args app pause
--   pause: ms until the next look, unless a sub-result ends before
-- returns {id, last, handles, what} for each; what: 0 = look, 1 = its time limit is over, 2 = the attempt is: nobody
--   waits for these any more; asked again: each once in `pause`
step.define('parked_take', {'allow-oom'}, function(c, args)
  local app, pause = unpack(args)
  local parked, taken = c.P .. 'parked:' .. app, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', parked, '-inf', c.now, 'LIMIT', 0, 100)) do
    local job = record.read(c, id)
    local handles, till, stale = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'handles', 'till', 'stale'))
    if job and stale then
      redis.call('HDEL', c.P .. 'job:' .. id, 'stale')
      taken[#taken + 1] = {id, '', stale, 2}
    end
    if job and job.state == 'parked' then
      till = tonumber(till) or 0
      redis.call('ZADD', parked, till > c.now and math.min(c.now + pause, till) or c.now + pause, id)
      taken[#taken + 1] = {id, job.last or '', handles or '', till > 0 and till <= c.now and 1 or 0}
    else
      redis.call('ZREM', parked, id)
      if job and handles then
        redis.call('HDEL', c.P .. 'job:' .. id, 'handles')
        taken[#taken + 1] = {id, '', handles, 2}
      end
    end
  end
  return taken
end)

-- job_unpark: concludes a parked job whose sub-results or time ended, as an attempt is concluded.
-- args id last kind detail delay most class task limit
--   last: the token under which it parked; kind, detail, delay, most, class, task, limit: as of job_finish; also of
--   kind lost: a sub-result was lost with its node, which counts as a loss
-- returns the state; '' = it is not parked under that token any more, nothing was done; asked again: ''
step.define('job_unpark', {'allow-oom'}, function(c, args)
  local id, last, kind, detail, delay, most, class, task, limit = unpack(args)
  local job = record.read(c, id)
  if not job or job.state ~= 'parked' or job.last ~= last then return '' end
  states.leave(c, id, job)
  history.note(c, job, 'woken')
  redis.call('HDEL', c.P .. 'job:' .. id, 'handles')
  return settle.conclude(c, id, job, kind, detail, delay, most, {class = class, task = task, limit = limit})
end)
