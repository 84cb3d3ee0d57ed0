-- sweep: what is due by the clock: lapsed leases, retries and starts, lifetimes, dead nodes, work beside room.
-- KEYS prefix
-- ARGV interval ttl gap
--   interval: ms that must have passed since the last sweep; ttl: of a lease; gap: a longer silence lets nobody be lost
-- returns {swept, rung, lost ids, gone nodes, how many sorters are due}
-- include drop
-- include full
-- include join
-- include lose
-- include node
local interval, ttl, gap = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local mark = redis.call('HMGET', P .. 'swept', 'last', 'grace')
local last, grace = tonumber(mark[1] or '0'), tonumber(mark[2] or '0')
if last <= now and now - last < interval then return {0, rung, {}, {}, 0} end
if math.abs(now - last) > gap then grace = now + ttl end
though_full()
redis.call('HSET', P .. 'swept', 'last', now, 'grace', grace)

local function first_due(set)
  return redis.call('ZRANGEBYSCORE', P .. set, '-inf', now, 'LIMIT', 0, 100)
end

local lost, gone = {}, {}
if now > grace then
  for _, set in ipairs({'leases', 'locks'}) do
    for _, id in ipairs(first_due(set)) do
      local job = read(id)
      redis.call('ZREM', P .. set, id)
      if job and job.state == 'running' then
        lose(id, job, 'lost', '"its lease ended: the process, its warden or its node is gone"')
        lost[#lost + 1] = id
      end
    end
  end
  gone = first_due('alive')
  for _, node in ipairs(gone) do forget(node) end
end

for _, id in ipairs(first_due('due')) do
  local job = read(id)
  redis.call('ZREM', P .. 'due', id)
  if job and job.state == 'retrying' then put_back(id, job) end
  if job and job.state == 'scheduled' then
    redis.call('SREM', P .. 'state:scheduled', id)
    join(id, keys_of(job.keys), redis.call('HGET', P .. 'job:' .. id, 'score'))
  end
end

for _, id in ipairs(first_due('expiry')) do
  local job = read(id)
  redis.call('ZREM', P .. 'expiry', id)
  if job and not TERMINAL[job.state] and job.state ~= 'running' and job.phase ~= 'rollback' then
    if job.state == 'ready' then drop(id, job) end
    give_up(id, job, 'expired', 'error', job.taken and '"max_lifetime is over"' or '"not started in time"')
  end
end
wake_idle()
return {1, rung, lost, gone, redis.call('ZCOUNT', P .. 'sorters', '-inf', now)}
