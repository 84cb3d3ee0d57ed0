-- Shared: what is ready, by class, in turns between groups of keys. ready:<class> lists the groups that have something,
-- each once, who is next first; group:<group>\n<class> lists their jobs in order.
-- include ring

-- Unless its submit named another: what its first key begins with, up to a slash; keys without one are one group.
local function group_of(job) return job.group or string.match(job.keys, '^([^/\n]*)/') or '' end

local function group_list(class, group) return P .. 'group:' .. group .. '\n' .. class end

local function put(id, class, group, at_head)
  local push = at_head and 'LPUSH' or 'RPUSH'
  if redis.call(push, group_list(class, group), id) == 1 then redis.call(push, P .. 'ready:' .. class, group) end
end

-- In a script that takes a job itself, the last one made ready: where nothing else is, it is that very one.
local direct, fresh = false, nil
local function settle()
  local one = fresh
  fresh = nil
  if one then put(unpack(one)) end
end

-- The next one, and its group, which goes behind the others.
local function shift(class)
  local ready = P .. 'ready:' .. class
  local one = fresh
  if one and one[2] == class and redis.call('EXISTS', ready) == 0 then
    fresh = nil
    return one[1], one[3]
  end
  settle()
  local group = redis.call('LMOVE', ready, ready, 'LEFT', 'RIGHT')
  if not group then return end
  local list = group_list(class, group)
  local id = redis.call('LPOP', list)
  if redis.call('EXISTS', list) == 0 then redis.call('RPOP', ready) end
  return id, group
end

local readied = {}
-- One bell for each job that became ready, less one of the class of which the caller takes or rings one itself.
local function ring_readied(delay, served)
  settle()
  for _, one in ipairs(readied) do
    if one[1] == served then served = nil else ring(one[1], one[2], delay) end
  end
end

local function make_ready(id, job)
  settle()
  fresh = {id, job.class, group_of(job)}
  if not direct then settle() end
  readied[#readied + 1] = {job.class, job.task}
end
