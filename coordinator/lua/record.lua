-- Shared: a job's record, the hash job:<id>.
-- include ring

-- limits: max_attempts max_losses time_limit max_lifetime keep_success keep_failure (ms)
local function limits_of(text)
  local limits = {}
  for number in string.gmatch(text, '%S+') do limits[#limits + 1] = tonumber(number) end
  return limits
end

local FIELDS = {'state', 'keys', 'limits', 'token', 'attempt', 'losses', 'class', 'task', 'melt', 'seldom', 'aliases',
  'node', 'runner', 'stop', 'condemned', 'taken', 'expires', 'tell', 'last', 'phase', 'ends', 'undo', 'hold', 'forgiven',
  'conflicts', 'parent'}
local function read(id, ...)
  local names = {...}
  for i = 1, #FIELDS do names[#names + 1] = FIELDS[i] end
  local job = {}
  for i, value in ipairs(redis.call('HMGET', P .. 'job:' .. id, unpack(names))) do
    if value then job[names[i]] = value end
  end
  return job.state and job or nil
end

-- States of jobs that nobody acts for and that are not in line simply to wait: kept as sets, by which they are counted.
local APART = {'scheduled', 'collected', 'retrying', 'parked', 'held', 'rolling_back'}
local TERMINAL = {succeeded = true, failed = true, rolled_back = true, double_fault = true, cancelled = true,
  expired = true}

-- A plain client's job has no app: it is its last node's.
local function app_of(job)
  local app = string.match(job.class, '^[^\n]*')
  return app ~= '' and app or job.node and redis.call('HGET', P .. 'node:' .. job.node, 'app') or ''
end

-- Its rollback is over, well or not: the record names the job's own task and class again.
local function undone(id, job)
  local name = P .. 'job:' .. id
  job.task, job.class = string.match(redis.call('HGET', name, 'was'), '^([^\n]*)\n(.*)$')
  redis.call('HSET', name, 'phase', 'undone', 'task', job.task, 'class', job.class)
end

-- Leases of jobs, and of locks in plain code: two sets, so that each can be counted.
local function leases_of(job) return job.class and 'leases' or 'locks' end

local function into(id, state)
  redis.call('SADD', P .. 'state:' .. state, id)
  redis.call('HSET', P .. 'job:' .. id, 'state', state, 'seldom', 1)
  return state
end

local function away(id, job)
  redis.call('ZREM', P .. 'due', id)
  redis.call('ZREM', P .. 'expiry', id)
  for _, state in ipairs(APART) do redis.call('SREM', P .. 'state:' .. state, id) end
  -- What of its sub-results is still at work is to be stopped: its app's wardens look at once.
  if job.state == 'parked' then redis.call('ZADD', P .. 'parked:' .. app_of(job), 0, id) end
end
