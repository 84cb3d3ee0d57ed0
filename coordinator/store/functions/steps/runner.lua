-- Runners take jobs and report how they ended; wardens renew their leases, and report lost processes.

-- runner_take: answers a wake-up, and claims the first ready job for its runner. One that was answered before, or is
-- void, yields nothing.
-- args node incarnation runner wake token ttl
--   incarnation: of the worker; another worker of the same name gets nothing, and the wake-up stays
-- returns job or false; asked again with the same token: the same job
step.define('runner_take', {'allow-oom'}, function(c, args)
  local node, incarnation, runner, wake, token, ttl = unpack(args)
  local known = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation')
  if known and known ~= incarnation then return false end
  local answers = redis.call('ZREM', c.P .. 'rung:' .. node, wake) == 1
  return claim.next(c, node, runner, token, ttl, answers and '' or '-')
end)

-- Records an outcome the long way: of a job that does not simply succeed, or that was reported before. Returns the
-- verdict and the state.
local function conclude(c, id, job, token, kind, detail, delay, most, following)
  if job and job.state == 'succeeded' and job.token == retention.trace_of(token) then return 'accepted', job.state end
  if not job or (job.token ~= token and job.last ~= token) then
    history.tally(c, 'fences_refused')
    return redis.call('EXISTS', c.P .. 'condemned:' .. token) == 1 and 'condemned' or 'lost', ''
  end
  if job.condemned == token then return 'condemned', '' end
  if job.token ~= token then return 'accepted', redis.call('HGET', job.name, 'answered') or '' end -- as before
  if states.TERMINAL[job.state] then return 'accepted', job.state end
  if kind == 'parked' and not job.stop then
    local ring = rings.find(c, id, detail)
    if ring then return 'deadlock', ring end
  end
  if job.state == 'ready' then -- put back too early: it was not lost after all
    ready.drop(c, id, job)
    job.losses = redis.call('HINCRBY', job.name, 'losses', -1)
    history.note(c, job, 'found')
  end
  local state = settle.conclude(c, id, job, kind, detail, delay, most, following)
  if not states.TERMINAL[state] then redis.call('HSET', job.name, 'answered', state) end
  return 'accepted', state
end

-- True if work:<node> still has this token for the runner.
local function holds(c, node, runner, token)
  local mine = redis.call('HGET', c.P .. 'work:' .. node, runner)
  return mine and string.sub(mine, 1, #token) == token
end

-- Ends the runner's slice, and wakes the node again if work is ready. A late request finds that the runner has gone
-- on, and removes nothing.
local function go(c, node, runner, token)
  if holds(c, node, runner, token) then redis.call('HDEL', c.P .. 'work:' .. node, runner) end
  wakes.rescore(c, node)
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes:' .. node)) do
    if redis.call('EXISTS', c.P .. 'ready:' .. class) == 1 then
      wakes.wake(c, node)
      c.served = class
      return
    end
  end
end

-- job_finish: records how an attempt ended, leaves the lines, admits the next job, and takes the next ready one.
-- args id token kind detail delay most class task limit node runner next ttl
--   kind: succeeded | ignored | failed (no more attempts) | raised (again after `delay` ms where attempts are left) |
--   conflict | parked | step | replaced; detail: JSON of the result, error, handles or steps; most: of raised, the
--   bound on attempts, '' = the job's own; class, task, limit: of step and replaced, those of the next step, limit in
--   ms; next: token of the next claim, '' = none: the slice is over
-- returns {verdict, state, job or false}; verdict: accepted | shared (accepted, and calls that were skipped for it, or
--   coalesced into it, wait for its end) | lost | condemned, or deadlock (the job would wait for itself: nothing was
--   done, and the ring is in place of the state); asked again: the same
step.define('job_finish', {'allow-oom'}, function(c, args)
  local id, token, kind, detail, delay, most, class, task, limit, node, runner, next, ttl = unpack(args)
  c.tell_after, c.direct = 5000, next ~= ''

  local job, verdict, state, before = record.read(c, id), 'accepted', 'succeeded', token
  if job and job.token == token and job.state == 'running' and kind == 'succeeded' and not job.seldom then
    settle.finish(c, id, job, 'succeeded', 'result', detail)
    before = false
  else
    local following = {class = class, task = task, limit = limit}
    verdict, state = conclude(c, id, job, token, kind, detail, delay, most, following)
    if verdict == 'accepted' and redis.call('HEXISTS', c.P .. 'job:' .. id, 'shared') == 1 then verdict = 'shared' end
  end
  if verdict == 'deadlock' then return {verdict, state, false} end
  local given = false
  if next ~= '' and verdict ~= 'condemned' then
    given = claim.next(c, node, runner, next, ttl, before)
  else
    go(c, node, runner, token)
  end
  return {verdict, state, given}
end)

-- job_lose: lets a job go on without the process of this token, which is gone or was stopped.
-- args id token how detail delay
--   how: lost | stopped | handed | timed_out; detail: JSON of the error; delay: ms until another attempt after a time
--   limit
-- returns the state; '' = the token is not the current one any more, nothing was done; asked again: ''
step.define('job_lose', {'allow-oom'}, function(c, args)
  local id, token, how, detail, delay = unpack(args)
  local job = record.read(c, id)
  if not job or job.token ~= token or job.state ~= 'running' then return '' end
  return settle.lose(c, id, job, how, detail, delay)
end)

-- job_progress: writes how far a running job is.
-- args id token progress
-- returns 1, or 0 if the job has another token: nothing was written; asked again: the same
step.define('job_progress', {'allow-oom'}, function(c, args)
  local id, token, progress = unpack(args)
  if redis.call('HGET', c.P .. 'job:' .. id, 'token') ~= token then return 0 end
  redis.call('HSET', c.P .. 'job:' .. id, 'progress', progress)
  return 1
end)

-- Notes in work:<node> that the runner holds the job, of which it may have been forgotten there. till: 1 = stop it.
local function note_work(c, id, job, token, till)
  redis.call('HSET', c.P .. 'work:' .. job.node, job.runner, token .. ' ' .. till .. ' ' .. id)
  wakes.rescore(c, job.node)
end

local function renew(c, id, job, token, ttl)
  if job.state == 'ready' then -- put back too early: it was not lost after all
    ready.drop(c, id, job)
    redis.call('HINCRBY', c.P .. 'job:' .. id, 'losses', -1)
    history.note(c, job, 'found')
    local limit = record.time_limit(job)
    local till = limit > 0 and job.started + limit or 0
    note_work(c, id, job, token, till)
  end
  redis.call('HSET', c.P .. 'job:' .. id, 'state', 'running')
  locks.renew(c, id, record.keys_of(job.keys), token, job.slots, ttl)
  redis.call('ZADD', c.P .. record.leases_of(job), c.uptime + ttl, id)
  local since = job.phase == 'rollback' and job.started or job.taken
  if job.class and not job.stop and since + record.max_lifetime(job) < c.now then
    record.note(c, id, 'stop', 'expired', 'error', '"max_lifetime is over"')
    note_work(c, id, job, token, 1)
  end
end

-- Ends a lock in plain code whose lifetime is over, though its process renews it. True if it ended.
local function is_outlived(c, id, job)
  local most = record.max_lifetime(job)
  if job.class or most == 0 or job.taken + most >= c.now then return false end
  settle.finish(c, id, job, 'expired', 'error', '"max_lifetime is over"')
  return true
end

-- lease_renew: renews the leases of these tokens, whose processes live.
-- args ttl pairs…
--   pairs: id and token in turns
-- returns a list: the token if it is still the job's, '' if the job has another one or is over; asked again: the same
step.define('lease_renew', {'allow-oom'}, function(c, args)
  local ttl, replies = tonumber(args[1]), {}
  for i = 2, #args, 2 do
    local id, token, ours = args[i], args[i + 1], false
    base.guarded(id, function()
      local job = record.read(c, id)
      ours = job and job.token == token
        and (job.state == 'running' or job.state == 'ready' and job.condemned ~= token)
      ours = ours and not is_outlived(c, id, job)
      if ours then renew(c, id, job, token, ttl) end
    end)
    replies[#replies + 1] = ours and token or ''
  end
  return replies
end)

-- runner_condemn: refuses the attempt's outcome and gives its runner nothing more, so that stopping its process hits no
-- other job. The job may have gone on without it: released, and tried again.
-- args node runner token id
-- returns 1, or 0 if the runner has gone on to another claim; asked again: the same
step.define('runner_condemn', {'allow-oom'}, function(c, args)
  local node, runner, token, id = unpack(args)
  if not holds(c, node, runner, token) then return 0 end
  redis.call('SET', c.P .. 'condemned:' .. token, id, 'PX', 3600000) -- the job may get another token, or end
  if redis.call('HGET', c.P .. 'job:' .. id, 'token') == token then record.note(c, id, 'condemned', token) end
  return 1
end)

-- work_drop: removes the entry of a runner whose process is gone.
-- args node runner token
-- returns 1 if it was there, else 0; asked again: 0
step.define('work_drop', {'allow-oom'}, function(c, args)
  local node, runner, token = unpack(args)
  if not holds(c, node, runner, token) then return 0 end
  redis.call('HDEL', c.P .. 'work:' .. node, runner)
  wakes.rescore(c, node)
  return 1
end)
