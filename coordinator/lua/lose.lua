-- Shared: an attempt that its process will not finish. how: lost (process, node or lease gone), handed
-- (stopped, so that another node goes on with it: no loss is counted), timed_out (past its
-- time limit, the process was stopped), or stopped (its field `stop` says as what it ends).
-- include conclude

local function lose(id, job, how, detail, delay)
  if job.node and job.runner then redis.call('HDEL', P .. 'work:' .. job.node, job.runner) end
  redis.call('ZREM', P .. leases_of(job), id)
  unlock_all(keys_of(job.keys), job.token, job.slots)
  if not job.class then return leave(id, job, 'failed', 'error', detail) end
  if job.stop and job.phase ~= 'rollback' then return give_up(id, job, job.stop) end
  if job.phase == 'rollback' then return give_up(id, job, 'failed', 'error', detail) end
  if how == 'timed_out' then
    if attempts_left(job) then return retry_later(id, job, delay or 0, detail) end
    return give_up(id, job, 'failed', 'error', detail)
  end
  if how == 'handed' then
    note(id, 'forgiven', (job.forgiven or 0) + 1)
  else
    redis.call('HINCRBY', P .. 'counts', 'losses', 1)
    note(id)
    local losses = redis.call('HINCRBY', P .. 'job:' .. id, 'losses', 1)
    if losses > limits_of(job.limits)[2] then return give_up(id, job, 'failed', 'error', detail) end
  end
  -- The record keeps the token: until somebody else is given the job, its holder may still finish it.
  put_back(id, job)
  redis.call('ZADD', P .. 'expiry', 'NX', job.taken + limits_of(job.limits)[4], id)
  return 'ready'
end
