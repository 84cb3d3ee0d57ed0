-- Shared: the outcomes that a runner, or the end of sub-results, can have.
-- include conclude
-- include full

-- The next step of an order: a taking of its own, at the head of the ready list of its own class.
local function advance(id, job, value, then_class, then_task, then_limit)
  local name, limits = P .. 'job:' .. id, limits_of(job.limits)
  let_go(id, job, 'value', value)
  redis.call('HSETNX', name, 'home', string.format('%.0f\n%s\n%s', limits[3], job.task, job.class))
  for _, field in ipairs({'step', 'forgiven'}) do redis.call('HINCRBY', name, field, 1) end
  limits[3] = then_limit
  for i = 1, #limits do limits[i] = string.format('%.0f', limits[i]) end
  job.class, job.task = then_class, then_task
  know(job.class)
  put_back(id, job, 'class', job.class, 'task', job.task, 'limits', table.concat(limits, ' '))
  return 'ready'
end

-- Holding its lane and no worker, until all of its sub-results ended.
local function park(id, job, handles)
  local limit, name = limits_of(job.limits)[3], P .. 'job:' .. id
  local till = limit > 0 and redis.call('HGET', name, 'started') + limit or 0
  let_go(id, job, 'handles', handles, 'till', till)
  redis.call('ZADD', P .. 'parked:' .. app_of(job), now, id)
  return into(id, 'parked')
end

-- Not counted among the attempts, bounded by a number of their own.
local function conflict(id, job, delay, detail)
  local name = P .. 'job:' .. id
  if redis.call('HINCRBY', name, 'conflicts', 1) > 20 then return give_up(id, job, 'failed', 'error', detail) end
  redis.call('HINCRBY', name, 'forgiven', 1)
  return retry_later(id, job, delay, detail)
end

-- more: of `raised` the bound on attempts or '', of `step` the class, task and time limit (ms) of the next.
local function conclude(id, job, outcome, detail, delay, more)
  though_full()
  local good = outcome == 'succeeded' or outcome == 'step' or outcome == 'parked'
  if job.phase == 'rollback' then
    if not good then return give_up(id, job, 'failed', 'error', detail) end
    undone(id, job)
    return end_or_hold(id, job, job.ends, 'rollback', 'done')
  end
  if job.stop then return give_up(id, job, job.stop) end
  if outcome == 'succeeded' then return leave(id, job, 'succeeded', 'result', detail) end
  if outcome == 'step' then return advance(id, job, detail, more[1], more[2], tonumber(more[3])) end
  if outcome == 'parked' then return park(id, job, detail) end
  if outcome == 'conflict' then return conflict(id, job, delay, detail) end
  if outcome == 'raised' and attempts_left(job, more[1]) then return retry_later(id, job, delay, detail) end
  return give_up(id, job, 'failed', 'error', detail)
end
