-- Shared: what is ready, by class, in turns between groups of keys. ready:<class> lists the groups that have something,
-- each once, who is next first; group:<group>\n<class> lists their jobs in order.
-- include base

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
  local job = fresh
  fresh = nil
  if not job then return end
  redis.call('HSET', job.name, 'state', 'ready')
  put(job.id, job.class, group_of(job))
end

local readied = {}
-- One bell for each job that became ready, less one of the class of which the caller takes or rings one itself.
local function ring_readied(delay, served)
  settle()
  if #readied == 0 or #readied == 1 and readied[1].class == served then return end
  -- include ring
  for _, job in ipairs(readied) do
    if job.class == served then served = nil else ring(job.class, job.task, delay) end
  end
end

-- job: its name, class, task, keys and group.
local function make_ready(id, job)
  settle()
  job.id, fresh = id, job
  if not direct then settle() end
  readied[#readied + 1] = job
end
