-- Shared: what follows when an attempt is over, however it ended.
-- include again
-- include apart
-- include class

-- Its rollback is over, well or not: the record names the job's own task and class again.
local function undone(id, job)
  local name = P .. 'job:' .. id
  job.task, job.class = string.match(redis.call('HGET', name, 'was'), '^([^\n]*)\n(.*)$')
  note(id, 'phase', 'undone', 'task', job.task, 'class', job.class)
end

-- Nobody acts for the job any more; the token stays known, to answer its holder again.
local function let_go(id, job, ...)
  redis.call('ZREM', P .. 'leases', id)
  local token = job.token or ''
  if token ~= '' then unlock_all(keys_of(job.keys), token, job.slots) end
  note(id, 'token', '', 'last', token ~= '' and token or job.last or '', ...)
  redis.call('HDEL', P .. 'job:' .. id, 'condemned')
  redis.call('ZADD', P .. 'expiry', 'NX', job.taken + limits_of(job.limits)[4], id)
end

-- The place in front is kept, no worker is.
local function retry_later(id, job, delay, detail)
  redis.call('HINCRBY', P .. 'counts', 'retries', 1)
  let_go(id, job, 'error', detail)
  redis.call('ZADD', P .. 'due', now + delay, id)
  return into(id, 'retrying')
end

-- The end, unless the lane is to be held for an operator.
local function end_or_hold(id, job, state, ...)
  if not job.hold or state == 'cancelled' or state == 'expired' then return leave(id, job, state, ...) end
  away(id, job)
  let_go(id, job, 'ends', state, ...)
  redis.call('PUBLISH', P .. 'done:' .. id, 'held')
  return into(id, 'held')
end

-- A started job will not succeed: its rollback runs first, once, in its place.
local function give_up(id, job, state, ...)
  if job.phase == 'rollback' then
    local fault = select(2, ...) or '"stopped"'
    undone(id, job)
    redis.call('HINCRBY', P .. 'counts', 'faults', 1)
    if job.ends ~= 'rolled_back' then return leave(id, job, job.ends, 'rollback', 'failed', 'fault', fault) end
    return end_or_hold(id, job, 'double_fault', 'rollback', 'failed', 'fault', fault)
  end
  if not job.undo or not job.taken or job.phase == 'undone' then return end_or_hold(id, job, state, ...) end
  away(id, job)
  let_go(id, job, 'phase', 'rollback', 'ends', state == 'failed' and 'rolled_back' or state,
    'was', job.task .. '\n' .. job.class, ...)
  redis.call('ZREM', P .. 'expiry', id)
  redis.call('HDEL', P .. 'job:' .. id, 'stop')
  job.task, job.class = string.match(job.undo, '^([^\n]*)\n[^\n]*\n(.*)$')
  know(job.class)
  into(id, 'rolling_back')
  put_back(id, job, 'task', job.task, 'class', job.class)
  return 'rolling_back'
end
