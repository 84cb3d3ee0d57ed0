-- Shared: fields of a job's record, the hash job:<id>.
-- include base

-- job.name = the record's; the named fields are read into `job`, nil where the record has none.
local function fill(job, ...)
  for i, value in ipairs(redis.call('HMGET', job.name, ...)) do
    if value then job[select(i, ...)] = value end
  end
  return job
end

-- Only a job has these of which there is more to look at (`seldom`) than of one that simply runs.
local function fill_rare(job)
  return fill(job, 'losses', 'aliases', 'stop', 'condemned', 'expires', 'last', 'phase', 'ends', 'undo', 'hold',
    'forgiven', 'conflicts', 'parent', 'slots', 'group')
end

-- A plain client's job has no app: it is its last node's.
local function app_of(job)
  local app = string.match(job.class, '^[^\n]*')
  return app ~= '' and app or job.node and redis.call('HGET', P .. 'node:' .. job.node, 'app') or ''
end

-- Leases of jobs, and of locks in plain code: two sets, so that each can be counted.
local function leases_of(job) return job.class and 'leases' or 'locks' end
