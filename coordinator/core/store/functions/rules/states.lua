-- States: jobs in a rarer state than waiting, ready or running are also in the set state:<state>, to be counted.
local states = {}

states.TERMINAL = {succeeded = true, failed = true, rolled_back = true, double_fault = true, cancelled = true,
  expired = true}
states.APART = {'scheduled', 'collected', 'collecting', 'blocked', 'retrying', 'parked', 'held', 'rolling_back'}

-- Names and values that follow the state are written with it.
function states.enter(c, id, state, ...)
  redis.call('SADD', c.P .. 'state:' .. state, id)
  record.note(c, id, 'state', state, ...)
  return state
end

function states.leave(c, id, job)
  redis.call('ZREM', c.P .. 'due', id)
  redis.call('ZREM', c.P .. 'expiry', id)
  if job.state == 'scheduled' then redis.call('ZREM', c.P .. 'starts', id) end
  if job.expires then states.started(c, id, job.expires) end
  if job.state == 'collected' then sorters.remove(c, id) end
  for _, state in ipairs(states.APART) do
    redis.call('SREM', c.P .. 'state:' .. state, id)
  end
  if job.after and (job.state == 'blocked' or job.state == 'held') then causes.leave(c, id) end
  if job.state ~= 'parked' then return end
  if job.event then
    redis.call('ZREM', c.P .. 'timeouts', id)
    redis.call('HDEL', job.name, 'event', 'then', 'else')
    return causes.forget(c, id, causes.EVENT .. job.event)
  end
  redis.call('ZREM', c.P .. 'walks', id)
  -- Lets maintenance of its app scan at once, to stop the sub-results still at work.
  redis.call('ZADD', c.P .. 'parked:' .. record.app_of(c, job), 0, id)
end

-- Schedules a job: the sweep reads `due` (and `starts`, for instants that people named) and puts it into its lines.
function states.schedule(c, id, score, start)
  local own, ms = base.split(start)
  redis.call('HSET', c.P .. 'job:' .. id, 'score', score)
  redis.call('ZADD', c.P .. (own and 'due' or 'starts'), ms, id)
  return states.enter(c, id, 'scheduled')
end

-- The set and time by which a job must have started: `expiry`, or `latest` for an instant that people named.
local function latest_of(c, expires)
  local own, ms = base.split(expires)
  return c.P .. (own and 'expiry' or 'latest'), ms
end

function states.must_start(c, id, expires)
  local set, ms = latest_of(c, expires)
  redis.call('ZADD', set, ms, id)
end

function states.started(c, id, expires) redis.call('ZREM', (latest_of(c, expires)), id) end

-- Lets maintenance of a job's app scan it at once, after the end of a sub-result. False: the job is not parked.
function states.look_at(c, parent)
  local job = record.read(c, parent)
  if not job or job.state ~= 'parked' or job.event then return false end
  redis.call('ZADD', c.P .. 'parked:' .. record.app_of(c, job), 0, parent)
  return true
end

return states
