-- Settling: after an attempt, a job ends, is held, is tried again, or is rolled back.
local settle = {}

-- Removes a job from its lines, and releases its locks.
local function leave(c, id, job, keys)
  line.leave(c, id, keys)
  redis.call('ZREM', c.P .. record.leases_of(job), id)
  if job.equal then coalesce.close(c, id, job, keys) end
  if job.seldom then states.leave(c, id, job) end
  if job.token then locks.release(c, keys, job.token) end
  ready.correct(c, job, true)
  if job.uses then
    if job.state ~= 'running' then quotas.withdraw(c, id, job) end
    quotas.give_back(c, id, job, true)
  end
end

local function count(c, id, state, task)
  history.count(c, state, task)
  return redis.call('PUBLISH', c.P .. 'done:' .. id, state)
end

-- Ends a job with a terminal state, and lets the jobs behind it go on.
function settle.finish(c, id, job, state, ...)
  local keys, app = record.keys_of(job.keys), job.tell and record.app_of(c, job) or ''
  leave(c, id, job, keys)
  local owed, listeners = app ~= '', 0
  if state == 'succeeded' and job.class then
    retention.fade(c, job, 'state', state, ...)
  else
    record.write(job.name, 'state', state, 'ended', c.now_text, ...)
  end
  if job.class then
    listeners = count(c, id, state, job.task)
    history.ended(c, id, keys, state)
    if state == 'failed' or state == 'rolled_back' then history.trouble(c, id, job, 'failed') end
  end
  if job.tick then ticks.ended(c, id, job.tick, state) end
  if job.blocks then causes.note_end(c, id, state) end
  if owed then redis.call('ZADD', c.P .. 'unsent:' .. app, base.text_of(c.now + c.tell_after), id) end
  if job.parent then states.look_at(c, job.parent) end
  if job.grab then grabs.end_job(c, job.keys, id, job.grab, state, record.max_lifetime(job)) end
  retention.begin(c, id, job, state, listeners, owed)
  for _, key in ipairs(keys) do admit.lane(c, key) end
  return state
end

-- Makes a job ready again. It kept the front of its lines, so it goes to the front of its group. One that lacks a quota
-- is ready, too, but in no list until it has that.
function settle.put_back(c, id, job, ...)
  if job.state == 'retrying' then
    redis.call('HSET', job.name, 'waited', string.format('retry %d', c.now - (tonumber(job.waited) or c.now)))
  end
  if job.state ~= 'running' then redis.call('SREM', c.P .. 'state:' .. job.state, id) end
  redis.call('HSET', job.name, 'state', 'ready', ...)
  if quotas.hold_back(c, id, job) then return end
  ready.put_back(c, id, job)
  base.add(c, 'readied', {class = job.class, task = job.task})
end

-- True if attempts are left. most?: their bound, '' = the job's own.
function settle.attempts_left(job, most)
  return job.attempt - (job.losses or 0) - (job.forgiven or 0) < (tonumber(most) or record.max_attempts(job))
end

-- Ends a rollback, successful or not: the record names the job's own task and class again.
function settle.end_rollback(c, id, job)
  job.task, job.class = string.match(redis.call('HGET', job.name, 'was'), '^([^\n]*)\n(.*)$')
  redis.call('ZREM', c.P .. 'expiry', id)
  redis.call('HDEL', job.name, 'back', 'undid')
  record.note(c, id, 'phase', 'undone', 'task', job.task, 'class', job.class)
end

-- Sets the end of the job's lifetime: max_lifetime after its first claim.
function settle.limit_lifetime(c, id, job)
  redis.call('ZADD', c.P .. 'expiry', 'NX', job.taken + record.max_lifetime(job), id)
end

-- Ends the claim. The record keeps the token, to recognize its holder's repeated request.
function settle.release(c, id, job, ...)
  redis.call('ZREM', c.P .. 'leases', id)
  local token = job.token or ''
  if token ~= '' then locks.release(c, record.keys_of(job.keys), token) end
  ready.correct(c, job, true)
  quotas.give_back(c, id, job)
  record.note(c, id, 'token', '', 'last', token ~= '' and token or job.last or '', ...)
  redis.call('HDEL', job.name, 'condemned')
  settle.limit_lifetime(c, id, job)
end

-- Lets a job wait for another attempt: it keeps its place in front, but no worker. Without a delay it is ready at once.
-- how: how the attempt ended, raised | conflict | timed_out.
function settle.retry_later(c, id, job, delay, detail, how)
  history.count(c, 'retries', job.task)
  history.note(c, job, how, detail, c.now + delay)
  settle.release(c, id, job, 'error', detail)
  if tonumber(delay) <= 0 then
    settle.put_back(c, id, job)
    return 'retrying'
  end
  redis.call('ZADD', c.P .. 'due', c.now + delay, id)
  return states.enter(c, id, 'retrying', 'waited', c.now_text)
end

-- Ends the job, unless its lane is to be held for an operator.
function settle.finish_or_hold(c, id, job, state, ...)
  if not job.hold or state == 'cancelled' or state == 'expired' then return settle.finish(c, id, job, state, ...) end
  states.leave(c, id, job)
  history.note(c, job, 'held', (select(2, ...)))
  history.trouble(c, id, job, 'held')
  settle.release(c, id, job, 'ends', state, ...)
  redis.call('PUBLISH', c.P .. 'done:' .. id, 'held')
  return states.enter(c, id, 'held')
end

-- Ends a job whose rollback failed or was stopped.
local function fault(c, id, job, detail)
  settle.end_rollback(c, id, job)
  history.count(c, 'faults', job.task)
  history.trouble(c, id, job, 'double_fault')
  if job.ends ~= 'rolled_back' then
    return settle.finish(c, id, job, job.ends, 'rollback', 'failed', 'fault', detail)
  end
  return settle.finish_or_hold(c, id, job, 'double_fault', 'rollback', 'failed', 'fault', detail)
end

-- Makes a rollback's step ready. The rollback has its own lifetime, so that it does not hold its lane for ever if no
-- node can run it.
local function undo(c, id, job, number, task, limit, class)
  redis.call('ZADD', c.P .. 'expiry', c.now + record.max_lifetime(job), id)
  redis.call('HDEL', job.name, 'stop')
  job.task, job.class, job.phase = task, class, 'rollback'
  classes.know(c, class)
  states.enter(c, id, 'rolling_back')
  settle.put_back(c, id, job, 'task', task, 'class', class, 'back', string.format('%d %d', number, limit))
end

-- Ends a job that will not succeed. If it was started, its rollback runs first, once, in its place.
function settle.give_up(c, id, job, state, ...)
  if job.phase == 'rollback' then return fault(c, id, job, select(2, ...) or '"stopped"') end
  if not job.undo or not job.taken or job.phase == 'undone' then
    return settle.finish_or_hold(c, id, job, state, ...)
  end
  states.leave(c, id, job)
  history.note(c, job, 'rolling_back', (select(2, ...)))
  settle.release(c, id, job, 'phase', 'rollback', 'ends', state == 'failed' and 'rolled_back' or state,
    'was', job.task .. '\n' .. job.class, ...)
  undo(c, id, job, 0, string.match(job.undo, '^([^\n]*)\n([^\n]*)\n(.*)$'))
  return 'rolling_back'
end

-- Goes on to the next step of a rollback; no step begins twice.
local function undo_next(c, id, job, outcome)
  history.note(c, job, 'step')
  settle.release(c, id, job, 'undid', outcome.detail)
  undo(c, id, job, record.back_of(job) + 1, outcome.task, outcome.limit, outcome.class)
  return 'ready'
end

-- Goes on to the next step of a chain, which gets a claim of its own, at the head of the ready list of its class.
-- Other steps may replace the step at work, which is no new attempt.
local function advance(c, id, job, outcome)
  local name, value = job.name, outcome.detail
  history.note(c, job, outcome.kind)
  if outcome.kind == 'replaced' then
    settle.release(c, id, job, 'instead', value)
    redis.call('HINCRBY', name, 'attempt', -1)
  else
    settle.release(c, id, job, 'value', value)
    redis.call('HDEL', name, 'instead')
    if job.undo then -- its rollback gets the results of all steps: JSON, joined by commas
      local before = redis.call('HGET', name, 'values')
      redis.call('HSET', name, 'values', before and before .. ',' .. value or value)
    end
    for _, field in ipairs({'step', 'forgiven'}) do redis.call('HINCRBY', name, field, 1) end
  end
  redis.call('HSETNX', name, 'home', string.format('%d\n%s\n%s', record.time_limit(job), job.task, job.class))
  job.class, job.task = outcome.class, outcome.task
  classes.know(c, job.class)
  local limits = record.with_time(job.limits, outcome.limit)
  settle.put_back(c, id, job, 'class', job.class, 'task', job.task, 'limits', limits)
  return 'ready'
end

-- Parks a job: it keeps its lane, but no worker, until all of its sub-results ended. A rollback's lifetime counts from
-- its claim. Sub-results of an earlier attempt that are not stopped yet stay in `stale`, for maintenance to stop.
local function park(c, id, job, handles)
  local undoing = job.phase == 'rollback'
  local stale = redis.call('HGET', job.name, 'handles')
  local limit = undoing and select(2, record.back_of(job)) or record.time_limit(job)
  if undoing then redis.call('ZADD', c.P .. 'expiry', job.started + record.max_lifetime(job), id) end
  if stale then redis.call('HSET', job.name, 'stale', stale) end
  history.note(c, job, 'parked')
  settle.release(c, id, job, 'handles', handles, 'till', limit > 0 and job.started + limit or 0)
  redis.call('ZADD', c.P .. 'parked:' .. record.app_of(c, job), c.now, id)
  redis.call('ZADD', c.P .. 'walks', 0, id)
  return states.enter(c, id, 'parked')
end

-- Parks a job until an event is set (rules/events.lua); if it is, the job goes on at once. detail: JSON {event, timeout
-- (ms), steps, else?}.
local function await(c, id, job, outcome)
  local wait = cjson.decode(outcome.detail)
  local value = redis.call('HGET', c.P .. 'event:' .. wait.event, 'value')
  if value then
    redis.call('HSET', job.name, 'value', value)
    return advance(c, id, job, {kind = 'replaced', detail = wait.steps, class = outcome.class, task = outcome.task,
      limit = outcome.limit})
  end
  history.note(c, job, 'parked')
  local way = string.format('%s\n%s\n%s\0%s', outcome.limit, outcome.task, outcome.class, wait.steps)
  settle.release(c, id, job, 'event', wait.event, 'then', way, 'else', wait['else'] or '')
  redis.call('ZADD', c.P .. 'timeouts', base.text_of(c.now + wait.timeout), id)
  causes.wait_for(c, id, causes.EVENT .. wait.event, redis.call('INCR', c.P .. 'sequence'))
  return states.enter(c, id, 'parked')
end

-- Tries again after a conflict. Conflicts do not count as attempts, and have a bound of their own.
local function conflict(c, id, job, delay, detail)
  if redis.call('HINCRBY', job.name, 'conflicts', 1) > 20 then
    return settle.give_up(c, id, job, 'failed', 'error', detail)
  end
  redis.call('HINCRBY', job.name, 'forgiven', 1)
  return settle.retry_later(c, id, job, delay, detail, 'conflict')
end

-- Ends an attempt that found a quota exhausted: it counts against no bound, and goes on once the quota is open again.
-- outcome.task: one of its quotas, '' = all.
local function cool_down(c, id, job, outcome)
  for _, use in ipairs(quotas.parse(job.uses or '')) do
    if outcome.task == '' or outcome.task == use.name then
      local act = cjson.encode({why = '', by = 'job ' .. id, at = c.wall})
      quotas.cool_down(c, use.name, '+' .. base.text_of(c.now + outcome.delay), act)
    end
  end
  redis.call('HINCRBY', job.name, 'forgiven', 1)
  return settle.retry_later(c, id, job, 0, outcome.detail, 'cooled_down')
end

-- Handles a lost run: the job goes on in its place as long as losses are left.
local function count_loss(c, id, job, detail)
  history.count(c, 'losses', job.task)
  history.note(c, job, 'lost', detail)
  record.note(c, id)
  local losses = redis.call('HINCRBY', job.name, 'losses', 1)
  if losses > record.max_losses(job) then
    return settle.give_up(c, id, job, 'failed', 'error', detail)
  end
  ready.correct(c, job)
  settle.put_back(c, id, job)
  settle.limit_lifetime(c, id, job)
  return 'ready'
end

-- Concludes an attempt, for a runner or after the end of sub-results. outcome: {kind, detail, delay?, most?, class?,
-- task?, limit?}. kind: succeeded | ignored (it succeeded, but neither its result nor links are sent) | failed (no more
-- attempts) | raised (again after `delay` ms where attempts are left; `most`: their bound) | lost (a sub-result is) |
-- conflict | cooled_down (of a quota, for `delay` ms) | parked | awaits (an event; class, task and limit: of the step
-- that follows it) | step (class, task and limit: of the next) | replaced (detail: the steps that go on in place of
-- this one).
function settle.conclude(c, id, job, outcome)
  local kind, detail = outcome.kind, outcome.detail
  if job.phase == 'rollback' then
    if kind == 'parked' then return park(c, id, job, detail) end
    if kind == 'step' then return undo_next(c, id, job, outcome) end
    if kind ~= 'succeeded' then return settle.give_up(c, id, job, 'failed', 'error', detail) end
    settle.end_rollback(c, id, job)
    return settle.finish_or_hold(c, id, job, job.ends, 'rollback', 'done')
  end
  if job.stop then return settle.give_up(c, id, job, job.stop) end
  if kind == 'ignored' then job.tell, kind = nil, 'succeeded' end
  if kind == 'succeeded' then return settle.finish(c, id, job, kind, 'result', detail) end
  if kind == 'step' or kind == 'replaced' then return advance(c, id, job, outcome) end
  if kind == 'parked' then return park(c, id, job, detail) end
  if kind == 'awaits' then return await(c, id, job, outcome) end
  if kind == 'lost' then return count_loss(c, id, job, detail) end
  if kind == 'conflict' then return conflict(c, id, job, outcome.delay, detail) end
  if kind == 'cooled_down' then return cool_down(c, id, job, outcome) end
  if kind == 'raised' and settle.attempts_left(job, outcome.most) then
    return settle.retry_later(c, id, job, outcome.delay, detail, kind)
  end
  return settle.give_up(c, id, job, 'failed', 'error', detail)
end

-- Concludes an attempt that its process will not finish. how: lost (process, node or lease gone), stopped (with its
-- worker: this is no attempt, and a late outcome is refused), handed (so, too, and the body had not begun, or had ended
-- and Redis lost that), or timed_out (past its time limit, the process was stopped). A job with the field `stop` ends
-- in that state. A rollback runs again only if it was handed: else a part of it may be done. delay?: ms until another
-- attempt, of timed_out.
function settle.lose(c, id, job, how, detail, delay)
  if job.node and job.runner and redis.call('HDEL', c.P .. 'work:' .. job.node, job.runner) == 1 then
    wakes.rescore(c, job.node)
  end
  redis.call('ZREM', c.P .. record.leases_of(job), id)
  locks.release(c, record.keys_of(job.keys), job.token)
  quotas.give_back(c, id, job)
  if not job.class then return settle.finish(c, id, job, 'failed', 'error', detail) end
  if how ~= 'timed_out' then history.tally(c, 'rescues\n' .. how) end
  if job.stop and job.phase ~= 'rollback' then return settle.give_up(c, id, job, job.stop) end
  local half = job.phase == 'rollback' and how ~= 'handed'
  if half then return settle.give_up(c, id, job, 'failed', 'error', detail) end
  if how == 'timed_out' then
    if settle.attempts_left(job) then return settle.retry_later(c, id, job, delay or 0, detail, how) end
    return settle.give_up(c, id, job, 'failed', 'error', detail)
  end
  -- The record keeps the token: until another runner gets the job, the holder may still finish it.
  if how == 'lost' then return count_loss(c, id, job, detail) end
  history.note(c, job, how, detail)
  ready.correct(c, job)
  settle.put_back(c, id, job, 'token', '', 'attempt', job.attempt - 1, 'seldom', 1)
  settle.limit_lifetime(c, id, job)
  return 'ready'
end

-- Ends locks in plain code that were not renewed, when another process wants the lane. This goes by the installation's
-- clock, as the holder does: it stops trusting a lease that was not confirmed for its whole ttl. Holders of jobs do not
-- check that themselves; the sweep ends their leases by the uptime.
function settle.end_lapsed(c, key)
  local id = line.holder(c, key)
  local job = id and redis.call('ZSCORE', c.P .. 'locks', id) and record.read(c, id)
  if job and not job.class and job.state == 'running' and locks.is_lapsed(c, job) then
    settle.lose(c, id, job, 'lost', '"its lease ended"')
  end
end

return settle
