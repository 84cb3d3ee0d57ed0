-- Shared: jobs that stand apart from those that simply wait, are ready or run.
-- include record
-- include sorting

-- Their states are kept as sets, by which they are counted.
local APART = {'scheduled', 'collected', 'retrying', 'parked', 'held', 'rolling_back'}

local function into(id, state)
  redis.call('SADD', P .. 'state:' .. state, id)
  note(id, 'state', state)
  return state
end

local function away(id, job)
  redis.call('ZREM', P .. 'due', id)
  redis.call('ZREM', P .. 'expiry', id)
  if job.state == 'collected' then uncollect(id) end
  for _, state in ipairs(APART) do
    redis.call('SREM', P .. 'state:' .. state, id)
  end
  -- What of its sub-results is still at work is to be stopped: its app's wardens look at once.
  if job.state == 'parked' then redis.call('ZADD', P .. 'parked:' .. app_of(job), 0, id) end
end
