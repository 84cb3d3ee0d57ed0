-- Cancelling: a job that is not over ends.
local cancel = {}

-- Its body is at work, or was; a job that waits for its retry may be ended all the same.
local function has_begun(job)
  return job.state == 'running' or job.state == 'parked' or job.state == 'held' or job.phase == 'rollback'
    or job.taken and job.state == 'ready'
end

-- One that runs is marked; its node's warden stops its process first. The state after it, '' = no such job. unbegun:
-- only one that has not begun.
function cancel.job(c, id, why, by, unbegun)
  local job = record.read(c, id)
  if not job then return '' end
  if states.TERMINAL[job.state] then return job.state end
  if unbegun and has_begun(job) then return job.phase == 'rollback' and 'rolling_back' or job.state end
  local detail = cjson.encode({type = 'Cancelled', message = why, by = by})
  -- Nobody has begun it. One that a cancel caused goes on: that cancel may only be asked again.
  local fresh = job.phase == 'rollback' and job.state == 'ready' and record.back_of(job) == 0
  if fresh and job.ends ~= 'cancelled' then
    ready.drop(c, id, job)
    job.hold = nil
    return settle.give_up(c, id, job, 'cancelled', 'error', detail)
  end
  if job.phase == 'rollback' then return 'rolling_back' end
  if job.state == 'running' and job.class then
    if not job.stop then record.note(c, id, 'stop', 'cancelled', 'error', detail) end -- the first cause is kept
    if redis.call('HEXISTS', c.P .. 'work:' .. job.node, job.runner) == 1 then
      redis.call('HSET', c.P .. 'work:' .. job.node, job.runner, job.token .. ' 1 ' .. id)
    end
    return 'running'
  end
  if job.state == 'ready' then ready.drop(c, id, job) end
  return settle.give_up(c, id, job, 'cancelled', 'error', detail)
end

local MOST = 100 -- jobs of a lane that one submit replaces

-- A job replaces those at work in its lanes, and those that wait there to replace them. Locks in plain code stay.
function cancel.replace(c, keys, by)
  for _, key in ipairs(keys) do
    local marks = line.marks(c, key)
    for _, id in ipairs(redis.call('ZRANGE', c.P .. 'line:' .. key, marks, marks + MOST - 1)) do
      local state, class, replaces = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'state', 'class', 'replaces'))
      if class and (state ~= 'waiting' or replaces) then cancel.job(c, id, 'replaced by ' .. by, 'the lane') end
    end
  end
end

return cancel
