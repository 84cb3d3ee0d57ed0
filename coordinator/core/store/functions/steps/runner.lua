-- Runners take jobs and report how they ended; supervisors renew their leases, and report lost processes.

step.define('runner_take', {'allow-oom'}, function(c, node, incarnation, runner, wake, token, ttl)
  local known = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation')
  if known and known ~= incarnation then return false end
  local answers = redis.call('ZREM', c.P .. 'rung:' .. node, wake) == 1
  return claim.next(c, node, runner, token, ttl, answers and '' or '-')
end)

-- Records an outcome the long way: of a job that does not simply succeed, or that was reported before. Returns the
-- verdict and the state.
local function conclude(c, id, job, token, outcome)
  if job and job.state == 'succeeded' and job.token == retention.trace_of(token) then return 'accepted', job.state end
  if not job or (job.token ~= token and job.last ~= token) then
    history.tally(c, 'fences_refused')
    return redis.call('EXISTS', c.P .. 'condemned:' .. token) == 1 and 'condemned' or 'lost', ''
  end
  if job.condemned == token then return 'condemned', '' end
  if job.token ~= token then return 'accepted', redis.call('HGET', job.name, 'answered') or '' end -- as before
  if states.TERMINAL[job.state] then return 'accepted', job.state end
  if outcome.kind == 'parked' and not job.stop then
    local ring = rings.find(c, id, outcome.detail)
    if ring then return 'deadlock', ring end
  end
  if job.state == 'ready' then -- put back too early: it was not lost after all
    ready.drop(c, id, job)
    job.losses = redis.call('HINCRBY', job.name, 'losses', -1)
    history.note(c, job, 'found')
  end
  local state = settle.conclude(c, id, job, outcome)
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

step.define('job_finish', {'allow-oom'}, function(
  c, id, token, kind, detail, delay, most, next_class, next_task, next_limit, node, runner, next_token, ttl)
  c.tell_after, c.direct = 5000, next_token ~= ''

  local job, verdict, state, before = record.read(c, id), 'accepted', 'succeeded', token
  if job and job.token == token and job.state == 'running' and kind == 'succeeded' and not job.seldom then
    settle.finish(c, id, job, 'succeeded', 'result', detail)
    before = false
  else
    verdict, state = conclude(c, id, job, token, {kind = kind, detail = detail, delay = delay, most = most,
      class = next_class, task = next_task, limit = next_limit})
    if verdict == 'accepted' and redis.call('HEXISTS', c.P .. 'job:' .. id, 'shared') == 1 then verdict = 'shared' end
  end
  if verdict == 'deadlock' then return {verdict, state, false} end
  local given = false
  if next_token ~= '' and verdict ~= 'condemned' then
    given = claim.next(c, node, runner, next_token, ttl, before)
  else
    go(c, node, runner, token)
  end
  return {verdict, state, given}
end)

step.define('job_lose', {'allow-oom'}, function(c, id, token, how, detail, delay)
  local job = record.read(c, id)
  if not job or job.token ~= token or job.state ~= 'running' then return '' end
  return settle.lose(c, id, job, how, detail, delay)
end)

step.define('job_progress', {'allow-oom'}, function(c, id, token, progress)
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
    if job.uses then quotas.take_again(c, id, job) end
    local limit = record.time_limit(job)
    local till = limit > 0 and job.started + limit or 0
    note_work(c, id, job, token, till)
  end
  redis.call('HSET', c.P .. 'job:' .. id, 'state', 'running')
  locks.renew(c, record.keys_of(job.keys), token, ttl)
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

step.define('lease_renew', {'allow-oom'}, function(c, ttl, args, from)
  local span, replies = tonumber(ttl), {}
  for i = from, #args, 2 do
    local id, token, ours = args[i], args[i + 1], false
    base.guarded(id, function()
      local job = record.read(c, id)
      ours = job and job.token == token
        and (job.state == 'running' or job.state == 'ready' and job.condemned ~= token)
      ours = ours and not is_outlived(c, id, job)
      if ours then renew(c, id, job, token, span) end
    end)
    replies[#replies + 1] = ours and token or ''
  end
  return replies
end)

step.define('runner_condemn', {'allow-oom'}, function(c, node, runner, token, id)
  if not holds(c, node, runner, token) then return 0 end
  redis.call('SET', c.P .. 'condemned:' .. token, id, 'PX', 3600000) -- the job may get another token, or end
  if redis.call('HGET', c.P .. 'job:' .. id, 'token') == token then record.note(c, id, 'condemned', token) end
  return 1
end)

step.define('work_drop', {'allow-oom'}, function(c, node, runner, token)
  if not holds(c, node, runner, token) then return 0 end
  redis.call('HDEL', c.P .. 'work:' .. node, runner)
  wakes.rescore(c, node)
  return 1
end)
