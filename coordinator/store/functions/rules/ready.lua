-- Ready jobs: lists by class, with turns between groups of keys. ready:<class> lists the groups with ready jobs, each
-- once, the next one first; group:<group>\n<class> is the sorted set of a group's jobs. ready = the classes with ready
-- jobs. ready-by-task has each ready job as "<task>\n<class>\n\n<id>", all of one score: so their bytes are their
-- order, and those of a task and class stand together, to be counted.
-- A job that was not started is ordered by priority, and by the sequence in which it became ready. A point of priority
-- counts as much as WORTH places, so that low priorities do not wait for ever. Jobs that were started before come
-- first.
local ready = {}

local WORTH, FRONT = 1048576, 9007199254740992

-- A job's group, as its submit named it, else the part of its first key before a slash; keys without a slash
-- form one group.
function ready.group_of(job) return job.group or string.match(job.keys, '^([^/\n]*)/') or '' end

function ready.group_list(c, class, group) return c.P .. 'group:' .. group .. '\n' .. class end

local function kind_of(task, class) return (task or '') .. '\n' .. class .. '\n\n' end

-- Counts a job among the ready ones of its task and class.
function ready.count_in(c, id, job)
  redis.call('ZADD', c.P .. 'ready-by-task', '0', kind_of(job.task, job.class) .. id)
end

-- The tasks and classes of ready jobs behind a place, `most` at most: {task, class, number of jobs, place}.
function ready.kinds(c, after, most)
  local all, kinds = c.P .. 'ready-by-task', {}
  while #kinds < most do
    local first = redis.call('ZRANGEBYLEX', all, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, 1)[1]
    local task, class = string.match(first or '', '^([^\n]*)\n(.*)\n\n[^\n]*$')
    if not task then break end
    local kind = kind_of(task, class)
    after = kind .. '\255' -- no text has this byte
    kinds[#kinds + 1] = {task, class, redis.call('ZLEXCOUNT', all, '[' .. kind, '(' .. after), after}
  end
  return kinds
end

-- Counts it there no longer. A damaged record may not tell where: then all tasks and classes are tried.
function ready.count_out(c, id, task, class)
  local all = c.P .. 'ready-by-task'
  if redis.call('ZREM', all, kind_of(task, class) .. id) == 1 then return end
  for _, kind in ipairs(ready.kinds(c, '', 1000)) do redis.call('ZREM', all, kind_of(kind[1], kind[2]) .. id) end
end

local function line_up(c, id, class, group, score, push)
  local list, groups = ready.group_list(c, class, group), c.P .. 'ready:' .. class
  if redis.call('ZADD', list, base.text_of(score), id) == 0 or redis.call('ZCARD', list) > 1 then return end
  if redis.call(push, groups, group) > 1 then return end
  redis.call('SADD', c.P .. 'ready', class)
  classes.know(c, class)
end

-- Adds a job that was not started. sequence: known for a job that this step submitted.
function ready.put(c, id, job, sequence)
  sequence = sequence or redis.call('INCR', c.P .. 'sequence')
  ready.count_in(c, id, job)
  line_up(c, id, job.class, ready.group_of(job), sequence - (job.priority or 0) * WORTH, 'RPUSH')
end

-- Adds a job that was started before and kept the front of its lines.
function ready.put_back(c, id, job)
  ready.count_in(c, id, job)
  line_up(c, id, job.class, ready.group_of(job), redis.call('INCR', c.P .. 'sequence') - FRONT, 'LPUSH')
end

-- Moves a job that was shifted and cannot be taken now behind the others. score: of its place.
function ready.put_behind(c, id, class, group, score)
  local last = redis.call('ZRANGE', ready.group_list(c, class, group), -1, -1, 'WITHSCORES')[2]
  line_up(c, id, class, group, last and math.max(last + 1, score) or score, 'RPUSH')
end

-- Writes that a job is ready. rule: see rules/claim.lua.
function ready.write(c, job)
  redis.call('HSET', job.name, 'state', 'ready', 'readied', c.now_text, unpack(job.rule and {'rule', job.rule} or {}))
end

-- Writes the job in c.fresh, if there is one.
function ready.write_fresh(c)
  local job = c.fresh
  if not job then return end
  c.fresh = false
  ready.write(c, job)
  ready.put(c, job.id, job)
end

-- Makes a job ready. job: its name, class, task, keys, group and priority. A step that takes a job itself does not
-- write the last one yet: if nothing else is ready, it takes that one.
function ready.make(c, id, job)
  ready.write_fresh(c)
  job.id, c.fresh = id, job
  if not c.direct then ready.write_fresh(c) end
  base.add(c, 'readied', job)
end

-- Forgets the class if it has no ready jobs left.
local function forget_empty(c, class)
  if redis.call('EXISTS', c.P .. 'ready:' .. class) == 0 then redis.call('SREM', c.P .. 'ready', class) end
end

-- Takes the next job from the lists: its id; its group, which goes behind the others; and its score. It still counts
-- as ready. Without a score: the job that was in c.fresh.
function ready.shift(c, class)
  local groups, job = c.P .. 'ready:' .. class, c.fresh
  if job and job.class == class and redis.call('EXISTS', groups) == 0 then
    c.fresh = false
    return job.id, ready.group_of(job), nil, job
  end
  ready.write_fresh(c)
  local group, another = unpack(redis.call('LRANGE', groups, '0', '1'))
  if not group then return end
  local list = ready.group_list(c, class, group)
  local id, score = unpack(redis.call('ZPOPMIN', list))
  if redis.call('EXISTS', list) == 0 then
    redis.call('LPOP', groups)
    forget_empty(c, class)
  elseif another then
    redis.call('LMOVE', groups, groups, 'LEFT', 'RIGHT')
  end
  return id, group, score
end

-- Removes a job, so that no runner takes it.
function ready.drop(c, id, job)
  local group = ready.group_of(job)
  local list = ready.group_list(c, job.class, group)
  redis.call('ZREM', list, id)
  ready.count_out(c, id, job.task, job.class)
  if redis.call('EXISTS', list) == 0 then
    redis.call('LREM', c.P .. 'ready:' .. job.class, 1, group)
    forget_empty(c, job.class)
  end
end

-- Counts the ready jobs of a class in its first `most` groups.
function ready.count(c, class, most)
  local count = 0
  for _, group in ipairs(redis.call('LRANGE', c.P .. 'ready:' .. class, 0, most)) do
    count = count + redis.call('ZCARD', ready.group_list(c, class, group))
  end
  return count
end

return ready
