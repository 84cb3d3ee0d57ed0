-- Ready jobs, by class, in turns between groups of keys. ready:<class> lists the groups that have something, each
-- once, the next one first; group:<group>\n<class> lists their jobs in the order in which they became ready.
local ready = {}

-- Unless its submit named another: what the job's first key begins with, up to a slash; keys without one are one group.
function ready.group_of(job) return job.group or string.match(job.keys, '^([^/\n]*)/') or '' end

function ready.group_list(c, class, group) return c.P .. 'group:' .. group .. '\n' .. class end

function ready.put(c, id, class, group, at_head)
  local push = at_head and 'LPUSH' or 'RPUSH'
  if redis.call(push, ready.group_list(c, class, group), id) == 1 then
    redis.call(push, c.P .. 'ready:' .. class, group)
  end
end

-- Writes the job that was made ready last, where that waits.
function ready.write_fresh(c)
  local job = c.fresh
  if not job then return end
  c.fresh = false
  redis.call('HSET', job.name, 'state', 'ready')
  ready.put(c, job.id, job.class, ready.group_of(job))
end

-- job: its name, class, task, keys and group. A step that takes a job itself does not write the last one yet: where
-- nothing else is ready, the step takes that very one.
function ready.make(c, id, job)
  ready.write_fresh(c)
  job.id, c.fresh = id, job
  if not c.direct then ready.write_fresh(c) end
  base.add(c, 'readied', job)
end

-- The next job's id, and its group, which goes behind the others; the record as far as it was read.
function ready.shift(c, class)
  local groups, job = c.P .. 'ready:' .. class, c.fresh
  if job and job.class == class and redis.call('EXISTS', groups) == 0 then
    c.fresh, job.state = false, 'ready'
    return job.id, ready.group_of(job), job
  end
  ready.write_fresh(c)
  local group = redis.call('LMOVE', groups, groups, 'LEFT', 'RIGHT')
  if not group then return end
  local list = ready.group_list(c, class, group)
  local id = redis.call('LPOP', list)
  if redis.call('EXISTS', list) == 0 then redis.call('RPOP', groups) end
  return id, group
end

-- The job is not to be taken any more.
function ready.drop(c, id, job)
  local group = ready.group_of(job)
  local list = ready.group_list(c, job.class, group)
  redis.call('LREM', list, 1, id)
  if redis.call('EXISTS', list) == 0 then redis.call('LREM', c.P .. 'ready:' .. job.class, 1, group) end
end

-- How many, as far as the first `most` groups go.
function ready.count(c, class, most)
  local count = 0
  for _, group in ipairs(redis.call('LRANGE', c.P .. 'ready:' .. class, 0, most)) do
    count = count + redis.call('LLEN', ready.group_list(c, class, group))
  end
  return count
end

return ready
