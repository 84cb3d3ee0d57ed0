-- The sweep: any node's warden does what the clock brings, one warden at a time.

local MOST = 100 -- one step does so many of each kind: other steps get in between

-- The first that are due in a set; is there more?
local function first_due(c, set, at)
  local found = redis.call('ZRANGEBYSCORE', c.P .. set, '-inf', at, 'LIMIT', 0, MOST)
  if #found == MOST then c.more = 1 end
  return found
end

local function end_leases(c)
  local lost = {}
  for _, set in ipairs({'leases', 'locks'}) do
    for _, id in ipairs(first_due(c, set, c.uptime)) do
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

local function start_due(c, set, at)
  for _, id in ipairs(first_due(c, set, at)) do
    local job = record.read(c, id)
    redis.call('ZREM', c.P .. set, id)
    if job and job.state == 'retrying' then settle.put_back(c, id, job) end
    if job and job.state == 'scheduled' then
      redis.call('SREM', c.P .. 'state:scheduled', id)
      admit.join(c, id, record.keys_of(job.keys), redis.call('HGET', job.name, 'score'))
    end
  end
end

-- A rollback that some node will run as soon as it has room waits on.
local function waits_for_room(c, id, job)
  if job.phase ~= 'rollback' or job.state ~= 'ready' or not nodes.can_run(c, job.class, job.task) then return false end
  redis.call('ZADD', c.P .. 'expiry', c.now + record.limits_of(job.limits)[4], id)
  return true
end

local function expire(c, set, at)
  for _, id in ipairs(first_due(c, set, at)) do
    local job = record.read(c, id)
    redis.call('ZREM', c.P .. set, id)
    if job and not states.TERMINAL[job.state] and job.state ~= 'running' and not waits_for_room(c, id, job) then
      if job.state == 'ready' then ready.drop(c, id, job) end
      local why = job.taken and '"max_lifetime is over"' or '"not started in time"'
      settle.give_up(c, id, job, 'expired', 'error', why)
    end
  end
end

-- The youngest of those that are parked on a ring loses its attempt. Where none is parked, code waits for itself: it
-- asks again by itself, and is told.
local function break_ring(c, ids, why)
  local youngest, newest = nil, -1
  for _, id in ipairs(ids) do
    local state, fence = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'state', 'fence'))
    if state == 'parked' and tonumber(fence) > newest then youngest, newest = id, tonumber(fence) end
  end
  if not youngest then return end
  local job = record.read(c, youngest)
  states.leave(c, youngest, job)
  settle.conclude(c, youngest, job, 'failed', rings.error(why))
end

-- Rings that closed after their jobs had parked. So many edges are followed in one sweep; the next one goes on behind
-- the job that was looked at last.
local function end_rings(c)
  local left, parked, last = rings.MOST, c.P .. 'walks', redis.call('HGET', c.P .. 'swept', 'walked') or ''
  local ids = redis.call('ZRANGEBYLEX', parked, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, rings.MOST)
  last = ''
  for i, id in ipairs(ids) do
    local why, ring
    why, ring, left = rings.find(c, id, nil, left)
    if why then break_ring(c, ring, why) end
    if left <= 0 then
      last = ids[math.max(1, i - 1)]
      break
    end
  end
  redis.call('HSET', c.P .. 'swept', 'walked', last)
end

-- sweep: does what is due by the clock: lapsed leases, retries and starts, lifetimes, rings, dead nodes, work
--   beside room.
-- args interval gap
--   interval: ms that must have passed since the last sweep; gap: a longer silence of everybody ends no lease
-- returns {swept, lost ids, gone nodes, how many sorters are due, more}; more: 1 = go on at once, with interval 0;
--   asked again: what is due then
step.define('sweep', {'allow-oom'}, function(c, args)
  local interval, gap = tonumber(args[1]), tonumber(args[2])
  local last = tonumber(redis.call('HGET', c.P .. 'swept', 'last') or '0')
  if last <= c.now and c.now - last < interval then return {0, {}, {}, 0, 0} end
  redis.call('HSET', c.P .. 'swept', 'last', c.now_text)
  base.keep_gap(c, gap)

  local lost, gone = end_leases(c), first_due(c, 'alive', c.uptime)
  for _, node in ipairs(gone) do nodes.forget(c, node) end
  nodes.agree_on_format(c)
  start_due(c, 'due', c.now)
  start_due(c, 'starts', c.wall)
  expire(c, 'expiry', c.now)
  expire(c, 'latest', c.wall)
  retention.forget_melted(c)
  local cursor = redis.call('HGET', c.P .. 'swept', 'classes') or '0'
  redis.call('HSET', c.P .. 'swept', 'classes', classes.forget_some(c, cursor))
  if c.more == 0 then
    end_rings(c)
    nodes.wake_idle(c)
  end
  return {1, lost, gone, redis.call('ZCOUNT', c.P .. 'sorters', '-inf', c.now), c.more}
end)
