-- Shared: a job's record, the hash job:<id>.
-- include ring

-- limits: max_attempts max_losses time_limit max_lifetime keep_success keep_failure (ms)
local function limits_of(text)
  local limits = {}
  for number in string.gmatch(text, '%S+') do limits[#limits + 1] = tonumber(number) end
  return limits
end

-- The rare fields only a job has of which there is more to look at (`seldom`) than of one that simply runs. Two more
-- are read where they are named: spec and unite.
local function read(id, ...)
  local name = P .. 'job:' .. id
  local found = redis.call('HMGET', name, 'state', 'keys', 'limits', 'token', 'attempt', 'class', 'task', 'node',
    'runner', 'started', 'taken', 'tell', 'melt', 'seldom', ...)
  if not found[1] then return nil end
  local job = {name = name, state = found[1], keys = found[2], limits = found[3], token = found[4] or nil,
    attempt = found[5] or nil, class = found[6] or nil, task = found[7] or nil, node = found[8] or nil, runner = found[9] or nil,
    started = found[10] or nil, taken = found[11] or nil, tell = found[12] or nil, melt = found[13] or nil,
    seldom = found[14] or nil, spec = found[15], unite = found[16]}
  if job.seldom then
    local RARE = {'losses', 'aliases', 'stop', 'condemned', 'expires', 'last', 'phase', 'ends', 'undo', 'hold',
      'forgiven', 'conflicts', 'parent', 'slots', 'group'}
    for i, value in ipairs(redis.call('HMGET', name, unpack(RARE))) do job[RARE[i]] = value or nil end
  end
  return job
end

-- Writes fields, some of them rare ones.
local function note(id, ...) redis.call('HSET', P .. 'job:' .. id, 'seldom', 1, ...) end

local TERMINAL = {succeeded = true, failed = true, rolled_back = true, double_fault = true, cancelled = true,
  expired = true}

-- A plain client's job has no app: it is its last node's.
local function app_of(job)
  local app = string.match(job.class, '^[^\n]*')
  return app ~= '' and app or job.node and redis.call('HGET', P .. 'node:' .. job.node, 'app') or ''
end

-- Leases of jobs, and of locks in plain code: two sets, so that each can be counted.
local function leases_of(job) return job.class and 'leases' or 'locks' end
