-- Shared: a job's whole record.
-- include fields

-- limits: max_attempts max_losses time_limit max_lifetime keep_success keep_failure (ms)
local function limits_of(text)
  local limits = {}
  for number in string.gmatch(text, '%S+') do limits[#limits + 1] = tonumber(number) end
  return limits
end

local function read(id)
  local job = fill({name = P .. 'job:' .. id}, 'state', 'keys', 'limits', 'token', 'attempt', 'class', 'task', 'node',
    'runner', 'started', 'taken', 'tell', 'melt', 'seldom')
  if not job.state then return nil end
  return job.seldom and fill_rare(job) or job
end

-- Writes fields, some of them rare ones.
local function note(id, ...) redis.call('HSET', P .. 'job:' .. id, 'seldom', 1, ...) end

local TERMINAL = {succeeded = true, failed = true, rolled_back = true, double_fault = true, cancelled = true,
  expired = true}
