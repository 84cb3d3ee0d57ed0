-- Shared: whose turn it is.
-- include line
-- include locking
local readied = {}
-- One bell for each job that became ready, less one of the class of which the caller takes or rings one itself.
local function ring_readied(delay, served)
  for _, one in ipairs(readied) do
    if one[1] == served then served = nil else ring(one[1], one[2], delay) end
  end
end

local function ready(id, class, task)
  redis.call('RPUSH', P .. 'ready:' .. class, id)
  readied[#readied + 1] = {class, task}
end

-- The first in line becomes ready when it stands in front in all its lines.
local function admit(key)
  local id = redis.call('ZRANGE', P .. 'line:' .. key, 0, 0)[1]
  if not id then return end
  local name = P .. 'job:' .. id
  local job = redis.call('HMGET', name, 'state', 'keys', 'class', 'task', 'token', 'ttl')
  if job[1] ~= 'waiting' then return end
  local keys = keys_of(job[2])
  if #keys > 1 and not in_front(id, keys) then return end
  if job[3] then
    redis.call('HSET', name, 'state', 'ready')
    return ready(id, job[3], job[4])
  end
  local fence = grant(id, keys, job[5], tonumber(job[6]))
  if not fence then return end
  redis.call('HSET', name, 'state', 'running', 'fence', fence, 'attempt', 1, 'taken', now, 'started', now)
  redis.call('RPUSH', P .. 'turn:' .. id, fence)
  redis.call('PEXPIRE', P .. 'turn:' .. id, job[6])
end

-- A job that stood apart takes its place in all its lines.
local function join(id, keys, score)
  redis.call('HSET', P .. 'job:' .. id, 'state', 'waiting')
  enter(id, keys, score)
  admit(keys[1])
end
