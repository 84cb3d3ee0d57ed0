-- The sweep: any node's warden does what the clock brings, one warden at a time.

local function first_due(c, set)
  return redis.call('ZRANGEBYSCORE', c.P .. set, '-inf', c.now, 'LIMIT', 0, 100)
end

local function end_leases(c)
  local lost = {}
  for _, set in ipairs({'leases', 'locks'}) do
    for _, id in ipairs(first_due(c, set)) do
      local job = record.read(c, id)
      redis.call('ZREM', c.P .. set, id)
      if job and job.state == 'running' then
        settle.lose(c, id, job, 'lost', '"its lease ended: the process, its warden or its node is gone"')
        lost[#lost + 1] = id
      end
    end
  end
  return lost
end

local function start_due(c)
  for _, id in ipairs(first_due(c, 'due')) do
    local job = record.read(c, id)
    redis.call('ZREM', c.P .. 'due', id)
    if job and job.state == 'retrying' then settle.put_back(c, id, job) end
    if job and job.state == 'scheduled' then
      redis.call('SREM', c.P .. 'state:scheduled', id)
      admit.join(c, id, record.keys_of(job.keys), redis.call('HGET', job.name, 'score'))
    end
  end
end

local function expire(c)
  for _, id in ipairs(first_due(c, 'expiry')) do
    local job = record.read(c, id)
    redis.call('ZREM', c.P .. 'expiry', id)
    if job and not states.TERMINAL[job.state] and job.state ~= 'running' and job.phase ~= 'rollback' then
      if job.state == 'ready' then ready.drop(c, id, job) end
      local why = job.taken and '"max_lifetime is over"' or '"not started in time"'
      settle.give_up(c, id, job, 'expired', 'error', why)
    end
  end
end

-- sweep: does what is due by the clock: lapsed leases, retries and starts, lifetimes, dead nodes, work beside room.
-- args interval ttl gap
--   interval: ms that must have passed since the last sweep; ttl: of a lease; gap: a longer silence lets nobody be lost
-- returns {swept, lost ids, gone nodes, how many sorters are due}; asked again: what is due then
step.define('sweep', {'allow-oom'}, function(c, args)
  local interval, ttl, gap = unpack(args)
  local swept = redis.call('HMGET', c.P .. 'swept', 'last', 'grace')
  local last, grace = tonumber(swept[1] or '0'), tonumber(swept[2] or '0')
  if last <= c.now and c.now - last < tonumber(interval) then return {0, {}, {}, 0} end
  if math.abs(c.now - last) > tonumber(gap) then grace = c.now + ttl end
  redis.call('HSET', c.P .. 'swept', 'last', c.now, 'grace', grace)

  local lost, gone = {}, {}
  if c.now > grace then
    lost, gone = end_leases(c), first_due(c, 'alive')
    for _, node in ipairs(gone) do nodes.forget(c, node) end
  end
  start_due(c)
  expire(c)
  nodes.wake_idle(c)
  return {1, lost, gone, redis.call('ZCOUNT', c.P .. 'sorters', '-inf', c.now)}
end)
