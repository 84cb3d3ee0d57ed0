-- Claims: give a runner a ready job, with a new token, a new fence and the full ttl.
-- The reply has id, keys, task, spec, attempt, losses, fence, limits, calls, class and tell; for a job with rare
-- fields also its fields MORE; and its waits that have ended, a reason and ms in turns: `lane` until it was its turn
-- in all of them and then `slot`, at its first claim; `quota` or `paused` by the field `rule`; `eta`, `collect` and
-- `retry` by `waited`. rule: `quota` and since when it lacked one; `paused` and since when where its resume let it
-- start.
local claim = {}

local CLASS = 10 -- the index of the class in the reply
local MORE = {'phase', 'step', 'value', 'forgiven', 'error', 'back', 'undid', 'values', 'instead', 'given'}

-- Reads what a claim needs of a job.
local function read(c, id)
  local name = c.P .. 'job:' .. id
  local state, keys, class, task, limits, tell, equal, attempt, taken, spec, calls, seldom, submitted, readied,
    joined, rule = unpack(redis.call('HMGET', name, 'state', 'keys', 'class', 'task', 'limits', 'tell', 'equal',
      'attempt', 'taken', 'spec', 'calls', 'seldom', 'submitted', 'readied', 'joined', 'rule'))
  local job = {name = name, state = state, keys = keys, class = class, task = task, limits = limits, tell = tell,
    equal = equal, attempt = attempt, taken = taken, spec = record.whole(name, 'spec', spec), calls = calls,
    seldom = seldom, since = joined or submitted, readied = readied, rule = rule}
  return record.fill_more(job)
end

-- The reply to a claim.
local function answer(id, job)
  return {id, job.keys, job.task, job.spec, job.attempt, job.losses or false, job.fence, job.limits, job.calls,
    job.class, job.tell, job.seldom and redis.call('HMGET', job.name, unpack(MORE)) or false,
    job.waits or false}
end

-- The waits of a job that is claimed now; false: it goes on after a loss, or with its next step.
local function waits_of(c, job)
  local waited, readied = job.waited or false, job.readied or job.since
  if job.taken then return waited end
  local rule, began = string.match(job.rule or 'lane', '^(%a+) ?(%d*)$')
  local from = math.max(job.since, tonumber(began) or 0)
  local waits = string.format('slot %d %s %d', c.now - readied, rule, readied - from)
  if rule ~= 'lane' then waits = string.format('%s lane %d', waits, from - job.since) end
  return waited and waits .. ' ' .. waited or waits
end

-- group: in which it stood among the ready jobs. Names and values that follow the ttl are written with the claim.
local function start(c, id, job, group, node, runner, token, ttl, ...)
  local keys, limit = record.keys_of(job.keys), record.time_limit(job)
  if not locks.acquire(c, keys, token, ttl) then return false end
  if job.uses then quotas.take(c, id, job) end
  ready.charge(c, job, group)
  job.attempt, job.fence = (job.attempt or 0) + 1, locks.next_fence(c)
  job.waits = waits_of(c, job)
  redis.call('HSET', job.name, 'state', 'running', 'token', token, 'fence', job.fence, 'attempt', job.attempt,
    'node', node, 'runner', runner, 'started', c.now_text, 'taken', job.taken or c.now_text, ...)
  if job.waited then redis.call('HDEL', job.name, 'waited') end
  redis.call('ZADD', c.P .. 'leases', base.text_of(c.uptime + ttl), id)
  if job.phase == 'rollback' then limit = select(2, record.back_of(job)) end
  local till = limit > 0 and base.text_of(c.now + limit) or '0'
  local new = redis.call('HSET', c.P .. 'work:' .. node, runner, token .. ' ' .. till .. ' ' .. id)
  if new == 1 then c.occupied = true end
  if job.equal then job.calls = coalesce.close(c, id, job, keys) or job.calls end
  if job.expires then states.started(c, id, job.expires) end
  if job.grab then grabs.take_job(c, job.keys, id, node, runner, job.fence) end
  return answer(id, job)
end

-- True once the search has seen all jobs of all groups. It visits the groups in turns, and so small groups more often.
local function all_seen(look, id, group)
  if look.ids[id] then look.around[group] = true end
  look.ids[id], look.groups[group] = true, true
  for one in pairs(look.groups) do
    if not look.around[one] then return false end
  end
  return true
end

-- Puts a job that lacks a quota now, though it was offered, into that quota's queue. A greater priority that came
-- meanwhile goes before it.
local function wait_for_quota(c, id, job, index, wait)
  quotas.take_back(c, id, job)
  if job.taken then return quotas.queue(c, id, job, index, wait) end
  redis.call('HSET', job.name, 'state', 'waiting')
  local keys = record.keys_of(job.keys)
  if not line.unpin(c, id, job, keys) or admit.in_front(c, id, keys) then
    return quotas.queue(c, id, job, index, wait)
  end
  quotas.withdraw(c, id, job)
  for _, key in ipairs(keys) do admit.lane(c, key) end
end

-- Returns the reply to the claim, or nil: the job expired, lacks a quota, or this node does not have its task. Second
-- value: true if the job left the ready list.
local function try(c, id, job, group, node, runner, token, ttl, ...)
  if job.state ~= 'ready' then return nil, true end
  if job.expires and not job.taken and base.is_past(c, job.expires) then
    settle.finish(c, id, job, 'expired', 'error', '"not started in time"')
    return nil, true
  end
  local fits = redis.call('SISMEMBER', c.P .. 'tasks:' .. node, job.task) == 1
  if fits and job.uses then
    local index, wait = quotas.lacking(c, id, job)
    if index then return wait_for_quota(c, id, job, index, wait), true end
  end
  return fits and start(c, id, job, group, node, runner, token, ttl, ...) or nil, false
end

-- The most jobs of which one claim looks at, and the most that it finds to lack a quota.
local MOST_LOOKED, MOST_LACKING = 16, 100

-- Claims the next job of a class. It skips stale entries, expired jobs, jobs that lack a quota, and tasks that this
-- node has not registered.
local function start_next(c, class, node, runner, token, ttl)
  local look, looked, lacking = nil, 0, 0
  while looked < MOST_LOOKED do
    local id, group, score, fresh = ready.shift(c, class)
    if not id then return end
    looked = looked + 1
    local reply, gone, task, lacked
    local good = base.guarded(id, function()
      local job = read(c, id)
      task = job.task
      if fresh then job.state, job.readied, job.rule = 'ready', c.now, fresh.rule end
      local more = fresh and {'readied', c.now_text} or {}
      reply, gone = try(c, id, job, group, node, runner, token, ttl, unpack(more))
      lacked = job.lack
    end)
    local stays = good and not gone and not reply
    if not stays and not fresh then ready.count_out(c, id, task, class) end
    if reply then return reply end
    if lacked and lacking < MOST_LACKING then looked, lacking = looked - 1, lacking + 1 end
    if stays then
      if fresh then
        ready.write(c, fresh)
        ready.count_in(c, id, fresh)
      end
      ready.put_behind(c, id, class, group, score or redis.call('INCR', c.P .. 'sequence'))
      look = look or {ids = {}, groups = {}, around = {}}
      if all_seen(look, id, group) then return end
    end
  end
end

-- Visits the node's classes, the one first whose first group has used least. A draining or dead node has no classes.
local function start_any(c, node, runner, token, ttl)
  alarm.is_due(c, runner)
  if c.ended then dependants.go_on(c) end
  admit.freed(c)
  local served, idle = redis.call('SMEMBERS', c.P .. 'classes:' .. node), nil
  if #served > 1 then
    c.beside = true
    served, idle = ready.order(c, node, served)
  end
  for _, class in ipairs(served) do
    local reply = start_next(c, class, node, runner, token, ttl)
    if reply then
      if idle then shares.take_along(c, class, idle) end
      return reply
    end
  end
  redis.call('HDEL', c.P .. 'work:' .. node, runner)
  return false
end

-- Repeats the reply for a job that the runner already has.
local function repeated(c, id)
  local job = read(c, id)
  job.fence = redis.call('HGET', job.name, 'fence')
  return answer(id, job)
end

-- Claims the next job for a runner, or returns false, or µs and a wake-up: the runner asks again with that after so
-- long. The runner's token stays in work:<node> until its claim ends, so that a runner whose reply was lost can repeat
-- the request. before: the token of the claim that this request ends, '' = the runner's first request, false =
-- certainly no repetition. A late request does not find `before` there and does nothing.
function claim.next(c, node, runner, token, ttl, before)
  local mine = before and redis.call('HGET', c.P .. 'work:' .. node, runner) or ''
  local held, id = string.match(mine, '^(%S*) ?%S* ?(.*)$')
  local reply = false
  if held == token then
    reply = repeated(c, id)
  elseif not before or held == before then
    reply = start_any(c, node, runner, token, ttl)
    if not reply then reply = alarm.wait(c, node, runner) or false end
    if before == '' or c.occupied or not reply then wakes.rescore(c, node) end
  end
  c.served = reply and reply[CLASS]
  return reply
end

return claim
