-- Ready jobs: lists by class, with fair shares between groups of keys. ready:<class> is the sorted set of the groups
-- with ready jobs, by their shares; group:<group>\n<class> is the sorted set of a group's jobs. ready = the classes
-- with ready jobs. ready-by-task has each ready job as "<task>\n<class>\n\n<id>", all of one score: so their bytes are
-- their order, and those of a task and class stand together, to be counted. A job that was not started is ordered by
-- priority, and by the sequence in which it became ready. A point of priority counts as much as WORTH places, so that
-- low priorities do not wait for ever. Jobs that were started before come first: they stand in a group of their own,
-- STARTED.
local ready = {}

local WORTH, STARTED = 1048576, '\1started'

-- A job's group, as its submit named it, else the part of its first key before a slash; keys without a slash
-- form one group.
function ready.group_of(job) return job.group or string.match(job.keys, '^([^/\n]*)/') or '' end

-- The group in which it stands among the ready jobs.
local function place_of(job) return job.taken and STARTED or ready.group_of(job) end

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

-- Writes the share of a group that stood alone, since no claim did. Returns where the class is.
local function place_first(c, class, groups)
  local first, place, another = unpack(redis.call('ZRANGE', groups, '0', '1', 'WITHSCORES'))
  if not first or first == STARTED then return shares.reached(c, class) or 0 end
  if not another then
    place = shares.enter(c, class, first, math.max(shares.reached(c, class) or 0, place))
    redis.call('ZADD', groups, base.text_of(place), first)
  end
  return shares.reached(c, class) or tonumber(place)
end

local function line_up(c, id, class, group, score)
  local list, groups = ready.group_list(c, class, group), c.P .. 'ready:' .. class
  if redis.call('ZADD', list, base.text_of(score), id) == 0 or redis.call('ZCARD', list) > 1 then return end
  local alone, least = redis.call('SADD', c.P .. 'ready', class) == 1, nil
  if alone then classes.know(c, class) else least = place_first(c, class, groups) end
  local share = group == STARTED and '-inf'
    or base.text_of(alone and shares.enter_alone(c, class) or shares.enter(c, class, group, least))
  redis.call('ZADD', groups, 'NX', share, group)
end

-- Adds a job that was not started. sequence?: known for a job that this step submitted.
function ready.put(c, id, job, sequence)
  sequence = sequence or redis.call('INCR', c.P .. 'sequence')
  ready.count_in(c, id, job)
  line_up(c, id, job.class, ready.group_of(job), sequence - (job.priority or 0) * WORTH)
end

-- Adds a job that was started before and kept the front of its lines.
function ready.put_back(c, id, job)
  ready.count_in(c, id, job)
  line_up(c, id, job.class, STARTED, redis.call('INCR', c.P .. 'sequence'))
end

-- Moves a job that was shifted and cannot be taken now behind the others, and its group behind the other groups, until
-- its next claim. score: of its place.
function ready.put_behind(c, id, class, group, score)
  local list, groups = ready.group_list(c, class, group), c.P .. 'ready:' .. class
  local last = redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', list, base.text_of(last and math.max(last + 1, score) or score), id)
  if redis.call('SADD', c.P .. 'ready', class) == 1 then classes.know(c, class) end
  local most = redis.call('ZRANGE', groups, -1, -1, 'WITHSCORES')[2] or '-inf'
  if most ~= '-inf' then
    redis.call('ZADD', groups, base.text_of(most + 1), group)
  else
    redis.call('ZADD', groups, group == STARTED and '-inf' or base.text_of(shares.reached(c, class) or 0), group)
  end
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

-- The job in c.fresh stands alone in its class, as if it were written.
local function enter_fresh(c, job)
  if not job.taken then shares.enter_alone(c, job.class) end
end

-- The classes of a node that have something ready, by the shares of their first groups, and those that have nothing.
-- Between equal shares they go in turns.
function ready.order(c, node, served)
  if c.fresh and redis.call('EXISTS', c.P .. 'ready') == 1 then ready.write_fresh(c) end
  if c.fresh then enter_fresh(c, c.fresh) end
  for _, class in ipairs(served) do
    if shares.settle(c, class) then place_first(c, class, c.P .. 'ready:' .. class) end
  end
  shares.meet(c, node, served)
  local found, places, idle = {}, {}, {}
  local some = c.fresh and {} or redis.call('SINTER', c.P .. 'classes:' .. node, c.P .. 'ready')
  for i = 1, #some do
    local class = some[(c.now + i) % #some + 1]
    local place = redis.call('ZRANGE', c.P .. 'ready:' .. class, '0', '0', 'WITHSCORES')[2]
    found[i], places[class] = class, {tonumber(place or 0), i}
    if places[class][1] == -math.huge then places[class][1] = shares.reached(c, class) or 0 end
  end
  for _, class in ipairs(served) do
    if c.fresh and c.fresh.class == class then
      found[1] = class -- nothing else is ready
    elseif not places[class] then
      idle[#idle + 1] = class
    end
  end
  table.sort(found, function(a, b)
    local one, other = places[a], places[b]
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  return found, idle
end

-- Forgets the class if it has no ready jobs left.
local function forget_empty(c, class)
  if redis.call('EXISTS', c.P .. 'ready:' .. class) == 0 then redis.call('SREM', c.P .. 'ready', class) end
end

-- Notes whether the job that is shifted stands beside other groups. Each new field of `c` makes it larger: so most
-- steps write none.
local function note_crowd(c, another)
  local crowded = another or c.beside
  if crowded or c.crowded then c.crowded = crowded end
end

-- Takes the next job from the lists: its id; the group in which it stood; and its score. It still counts as ready.
-- Without a score: the job that was in c.fresh.
function ready.shift(c, class)
  local groups, job = c.P .. 'ready:' .. class, c.fresh
  if job and job.class == class and redis.call('EXISTS', groups) == 0 then
    c.fresh = false
    note_crowd(c, nil)
    if not c.beside then enter_fresh(c, job) end
    return job.id, place_of(job), nil, job
  end
  ready.write_fresh(c)
  local group, another = unpack(redis.call('ZRANGE', groups, '0', '1'))
  if not group then return end
  note_crowd(c, another)
  local list = ready.group_list(c, class, group)
  local id, score = unpack(redis.call('ZPOPMIN', list))
  if redis.call('EXISTS', list) == 0 then
    redis.call('ZREM', groups, group)
    forget_empty(c, class)
  end
  return id, group, score
end

-- Charges a claim to the job's group. place: the group in which it stood among the ready jobs.
function ready.charge(c, job, place)
  local group = place ~= STARTED and place or ready.group_of(job)
  local share = shares.charge(c, job.class, group, job.task, not c.crowded)
  if share then redis.call('ZADD', c.P .. 'ready:' .. job.class, 'XX', base.text_of(share), group) end
end

-- Corrects the charge of a claim that has ended. seen?: the run counts for what its task usually takes.
function ready.correct(c, job, seen)
  if job.state ~= 'running' or not job.class or not job.started then return end
  local ms = c.now - job.started
  if shares.is_near(c, job.class, job.task, ms) then return end
  local group = ready.group_of(job)
  local miss, own = shares.miss(c, job.class, group, job.task, ms)
  if not miss then return end
  local share = shares.correct(c, job.class, group, job.task, miss, seen and own)
  if share then redis.call('ZADD', c.P .. 'ready:' .. job.class, 'XX', base.text_of(share), group) end
end

-- Removes a job, so that no runner takes it. One that lacks a quota is in no list.
function ready.drop(c, id, job)
  local lacks = job.lack
  if job.uses then quotas.withdraw(c, id, job) end
  if lacks then return end
  local group = place_of(job)
  local list = ready.group_list(c, job.class, group)
  redis.call('ZREM', list, id)
  ready.count_out(c, id, job.task, job.class)
  if redis.call('EXISTS', list) == 0 then
    redis.call('ZREM', c.P .. 'ready:' .. job.class, group)
    forget_empty(c, job.class)
  end
end

-- Counts the ready jobs of a class in its first `most` groups.
function ready.count(c, class, most)
  local count = 0
  for _, group in ipairs(redis.call('ZRANGE', c.P .. 'ready:' .. class, 0, most)) do
    count = count + redis.call('ZCARD', ready.group_list(c, class, group))
  end
  return count
end

return ready
