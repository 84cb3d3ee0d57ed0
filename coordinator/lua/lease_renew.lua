-- lease_renew: the processes that hold these tokens live.
-- KEYS prefix
-- ARGV ttl pairs…
--   pairs: id and token in turns
-- returns a list: the token where it is still the job's, '' where another was given it or the job is over
-- include drop
-- include full
-- include locking
-- include record
-- include slots
local ttl, replies = tonumber(ARGV[1]), {}

-- The first free slot beyond those of the limit, which was lowered below its holders.
local function beyond(key, token)
  local slot = limit_of(key) + 1
  while not redis.call('SET', lock_name(key, slot), token, 'NX', 'PX', ttl) do slot = slot + 1 end
  return slot
end

-- Each lock is its own again; where that of a key with a limit was given away, another slot of it.
local function relock(id, keys, token, slots)
  local held, moved = slots_of(slots), false
  for i, key in ipairs(keys) do
    local name = lock_name(key, held[i] or 1)
    local other = redis.call('GET', name)
    local slot = other and other ~= token and (lock_one(key, token, ttl) or beyond(key, token))
    if not slot then redis.call('SET', name, token, 'PX', ttl) end
    held[i], moved = slot or held[i] or 1, moved or slot
  end
  if moved then note(id, 'slots', table.concat(held, ' ')) end
end

local function renew(id, job, token)
  if job.state == 'ready' then -- put back too early: it was not lost after all
    drop(id, job)
    redis.call('HINCRBY', P .. 'job:' .. id, 'losses', -1)
    local limit = limits_of(job.limits)[3]
    local till = limit > 0 and job.started + limit or 0
    redis.call('HSET', P .. 'work:' .. job.node, job.runner, token .. ' ' .. till .. ' ' .. id)
  end
  redis.call('HSET', P .. 'job:' .. id, 'state', 'running')
  relock(id, keys_of(job.keys), token, job.slots)
  redis.call('ZADD', P .. leases_of(job), now + ttl, id)
  local since = job.phase == 'rollback' and job.started or job.taken
  if job.class and not job.stop and since + limits_of(job.limits)[4] < now then
    note(id, 'stop', 'expired', 'error', '"max_lifetime is over"')
    redis.call('HSET', P .. 'work:' .. job.node, job.runner, token .. ' 1 ' .. id)
  end
end

though_full()
for i = 2, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local job = read(id)
  local ours = job and job.token == token
    and (job.state == 'running' or job.state == 'ready' and job.condemned ~= token)
  if ours then renew(id, job, token) end
  replies[#replies + 1] = ours and token or ''
end
return replies
