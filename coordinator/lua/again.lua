-- Shared: a job goes back to be taken again.
-- include leave
-- include record

-- Again, in its place: it kept the front of its lines, so it goes to the head of the ready list.
local function put_back(id, job, ...)
  if job.state ~= 'running' then redis.call('SREM', P .. 'state:' .. job.state, id) end
  redis.call('HSET', P .. 'job:' .. id, 'state', 'ready', ...)
  put(id, job.class, group_of(job), true)
  readied[#readied + 1] = {class = job.class, task = job.task}
end

local function attempts_left(job, most)
  return job.attempt - (job.losses or 0) - (job.forgiven or 0) < (tonumber(most) or limits_of(job.limits)[1])
end
