-- Cancelling: ends jobs that are not over.
local cancel = {}

-- True if the job's body has begun; a job that waits for its retry counts as not begun.
local function has_begun(job)
  return job.state == 'running' or job.state == 'parked' or job.phase == 'rollback'
    or job.taken and (job.state == 'ready' or job.state == 'held')
end

-- Cancels a job. A running one is marked, and ends once its node's supervisor has stopped its process. unbegun?: cancel
-- only a job that has not begun. Returns the state afterwards, '' = no such job; and the state before if anything
-- changed.
function cancel.job(c, id, act, unbegun)
  local job = record.read(c, id)
  if not job then return '' end
  if states.TERMINAL[job.state] then return job.state end
  if unbegun and has_begun(job) then return job.phase == 'rollback' and 'rolling_back' or job.state end
  local detail = audit.detail(act, 'Cancelled')
  -- This rollback has not begun. One that a cancel caused goes on: the caller may only have repeated that cancel.
  local fresh = job.phase == 'rollback' and job.state == 'ready' and record.back_of(job) == 0
  if fresh and job.ends ~= 'cancelled' then
    ready.drop(c, id, job)
    job.hold = nil
    return settle.give_up(c, id, job, 'cancelled', 'error', detail), 'rolling_back'
  end
  if job.phase == 'rollback' then return 'rolling_back' end
  if job.state == 'running' and job.class then
    if not job.stop then -- the first cause stays
      history.note(c, job, 'stopping', detail)
      record.note(c, id, 'stop', 'cancelled', 'error', detail)
    end
    if redis.call('HEXISTS', c.P .. 'work:' .. job.node, job.runner) == 1 then
      redis.call('HSET', c.P .. 'work:' .. job.node, job.runner, job.token .. ' 1 ' .. id)
    end
    return 'running', not job.stop and 'running'
  end
  if job.state == 'ready' then ready.drop(c, id, job) end
  return settle.give_up(c, id, job, 'cancelled', 'error', detail), job.state
end

-- Cancels the jobs at work in the lanes of a job that replaces them, and those that wait there to replace them. Locks
-- in plain code stay. It collects all ids first: each cancel starts the next job, which then also looks like one at
-- work.
function cancel.replace(c, keys, by)
  local others = {}
  for _, key in ipairs(keys) do
    for _, id in ipairs(redis.call('ZRANGE', c.P .. 'line:' .. key, line.marks(c, key), -1)) do
      local state, class, replaces = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'state', 'class', 'replaces'))
      if class and (state ~= 'waiting' or replaces) then others[#others + 1] = id end
    end
  end
  for i = #others, 1, -1 do cancel.job(c, others[i], {why = 'replaced by ' .. by, by = 'the lane'}) end
end

return cancel
