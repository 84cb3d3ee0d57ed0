-- Ready jobs, by class, in turns between groups of keys. ready:<class> lists the groups that have something, each
-- once, the next one first; group:<group>\n<class> is a sorted set of their jobs. ready = the classes that have
-- something, state:ready = all these jobs.
-- A job that was not started stands by its priority, and by the sequence in which it became ready. Each point of
-- priority counts as much as WORTH places: so much later came the first that cannot overtake it. A job that was started
-- already stands before all those.
local ready = {}

local WORTH, FRONT = 1048576, 9007199254740992

-- Unless its submit named another: what the job's first key begins with, up to a slash; keys without one are one group.
function ready.group_of(job) return job.group or string.match(job.keys, '^([^/\n]*)/') or '' end

function ready.group_list(c, class, group) return c.P .. 'group:' .. group .. '\n' .. class end

local function add(c, id, class, group, score, push)
  local list, groups = ready.group_list(c, class, group), c.P .. 'ready:' .. class
  redis.call('SADD', c.P .. 'state:ready', id)
  if redis.call('ZADD', list, string.format('%.0f', score), id) == 0 or redis.call('ZCARD', list) > 1 then return end
  if redis.call(push, groups, group) > 1 then return end
  redis.call('SADD', c.P .. 'ready', class)
  classes.know(c, class)
end

-- sequence: of a job that was submitted just now.
function ready.put(c, id, class, group, priority, sequence)
  sequence = sequence or redis.call('INCR', c.P .. 'sequence')
  add(c, id, class, group, sequence - (priority or 0) * WORTH, 'RPUSH')
end

-- It was started already, and kept its place in front.
function ready.put_back(c, id, class, group)
  add(c, id, class, group, redis.call('INCR', c.P .. 'sequence') - FRONT, 'LPUSH')
end

-- It cannot be taken now, and is not to hide the others. score: that of its place.
function ready.put_behind(c, id, class, group, score)
  local last = redis.call('ZRANGE', ready.group_list(c, class, group), -1, -1, 'WITHSCORES')[2]
  add(c, id, class, group, last and math.max(last + 1, score) or score, 'RPUSH')
end

-- Writes the job that was made ready last, where that waits.
function ready.write_fresh(c)
  local job = c.fresh
  if not job then return end
  c.fresh = false
  redis.call('HSET', job.name, 'state', 'ready')
  ready.put(c, job.id, job.class, ready.group_of(job), job.priority)
end

-- job: its name, class, task, keys, group and priority. A step that takes a job itself does not write the last one yet:
-- where nothing else is ready, the step takes that very one.
function ready.make(c, id, job)
  ready.write_fresh(c)
  job.id, c.fresh = id, job
  if not c.direct then ready.write_fresh(c) end
  base.add(c, 'readied', job)
end

-- A list of groups, or its end, was taken away.
local function forget_empty(c, class)
  if redis.call('EXISTS', c.P .. 'ready:' .. class) == 0 then redis.call('SREM', c.P .. 'ready', class) end
end

-- The next job's id, and its group, which goes behind the others; the record as far as it was read; its score, where it
-- stood in a list.
function ready.shift(c, class)
  local groups, job = c.P .. 'ready:' .. class, c.fresh
  if job and job.class == class and redis.call('EXISTS', groups) == 0 then
    c.fresh, job.state = false, 'ready'
    return job.id, ready.group_of(job), job
  end
  ready.write_fresh(c)
  local group, another = unpack(redis.call('LRANGE', groups, '0', '1'))
  if not group then return end
  local list = ready.group_list(c, class, group)
  local id, score = unpack(redis.call('ZPOPMIN', list))
  redis.call('SREM', c.P .. 'state:ready', id)
  if redis.call('EXISTS', list) == 0 then
    redis.call('LPOP', groups)
    forget_empty(c, class)
  elseif another then
    redis.call('LMOVE', groups, groups, 'LEFT', 'RIGHT')
  end
  return id, group, nil, score
end

-- The job is not to be taken any more.
function ready.drop(c, id, job)
  local group = ready.group_of(job)
  local list = ready.group_list(c, job.class, group)
  redis.call('ZREM', list, id)
  redis.call('SREM', c.P .. 'state:ready', id)
  if redis.call('EXISTS', list) == 0 then
    redis.call('LREM', c.P .. 'ready:' .. job.class, 1, group)
    forget_empty(c, job.class)
  end
end

-- How many, as far as the first `most` groups go.
function ready.count(c, class, most)
  local count = 0
  for _, group in ipairs(redis.call('LRANGE', c.P .. 'ready:' .. class, 0, most)) do
    count = count + redis.call('ZCARD', ready.group_list(c, class, group))
  end
  return count
end

return ready
