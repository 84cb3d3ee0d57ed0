-- Admission: decides which waiting jobs may start, and makes them ready.
local admit = {}

-- For a line with a mark: true if the job is within the limit. An exclusive job runs alone, and nobody overtakes
-- it.
local function within_limit(c, id, key, exclusive)
  local members = c.P .. 'line:' .. key
  if redis.call('ZSCORE', members, line.PAUSED) then return false end
  local place, limit = redis.call('ZRANK', members, id) - 1, line.limit(c, key)
  if place >= limit or (exclusive and place > 0) then return false end
  local alone = line.first_alone(c, key, limit)
  return not alone or place < redis.call('ZRANK', members, alone)
end

-- True if the job may start by its places in line. Second value: true if one of its lines has a mark.
local function in_front(c, id, keys, exclusive)
  local marked = false
  for _, key in ipairs(keys) do
    local first = redis.call('ZRANGE', c.P .. 'line:' .. key, 0, 0)[1]
    if line.is_mark(first) then
      if not within_limit(c, id, key, exclusive) then return false end
      marked = true
    elseif first ~= id then
      return false
    end
  end
  return true, marked
end

-- The most dead waiters for locks that one step removes from their lines.
local MOST_PASSED = 100

local function pass_over(c, id, job, keys)
  if c.passed >= MOST_PASSED or not locks.is_silent(c, job.seen) then return false end
  c.passed = c.passed + 1
  for _, key in ipairs(keys) do redis.call('ZREM', c.P .. 'line:' .. key, id) end
  redis.call('HSET', job.name, 'state', 'failed')
  redis.call('PEXPIRE', job.name, 5000)
  return true
end

-- Grants a lock in plain code to its waiter at once, since no runner is needed. The waiter has a short time to show
-- that it still lives, and then gets the full ttl (lock_wait). The waiter that called this very step gets it at once;
-- any other is woken.
local function grant(c, id, job, keys)
  local ttl, waits = tonumber(job.ttl), c.asking ~= id
  if waits then ttl = math.min(ttl, locks.SILENT) end
  if not locks.acquire(c, id, keys, job.token, ttl) then return false end
  local fence = locks.next_fence(c)
  redis.call('ZADD', c.P .. 'locks', c.uptime + ttl, id)
  redis.call('HSET', job.name, 'state', 'running', 'fence', fence, 'attempt', 1, 'readied', c.now_text,
    'taken', c.now_text, 'started', c.now_text)
  if waits then
    redis.call('RPUSH', c.P .. 'turn:' .. id, fence)
    redis.call('PEXPIRE', c.P .. 'turn:' .. id, job.ttl)
  end
  return true
end

-- Makes the job ready, or grants the lock, if it may start. Returns true for a dead waiter, which left the line.
local function take_in(c, id, marked)
  local job = record.fill({name = c.P .. 'job:' .. id}, 'state', 'keys', 'class', 'task', 'group', 'exclusive',
    'priority')
  if job.state ~= 'waiting' or c.fresh and c.fresh.id == id then return end
  local keys, good = record.keys_of(job.keys), true
  if marked or #keys > 1 then good, marked = in_front(c, id, keys, job.exclusive) end
  if not good then return end
  if job.class then
    job.rule = c.paused and 'paused ' .. c.paused or marked and 'limit'
    ready.make(c, id, job)
  else
    record.fill(job, 'token', 'ttl', 'seen')
    if pass_over(c, id, job, keys) then return true end
    if not grant(c, id, job, keys) then return end
  end
  if marked then line.pin(c, id, keys) end
end

function admit.one(c, id, marked)
  local passed
  base.guarded(id, function() passed = take_in(c, id, marked) end)
  return passed
end

-- Starts each job of the lane that may start now, after a place in front became free.
function admit.lane(c, key)
  local members = c.P .. 'line:' .. key
  local heads = redis.call('ZRANGE', members, '0', '1')
  local id = heads[1]
  if not id then return redis.call('ZREM', c.P .. 'lanes', key) end
  if not heads[2] or line.is_mark(id) then line.note(c, key, heads) end
  if not line.is_mark(id) then
    if admit.one(c, id) then return admit.lane(c, key) end
    return
  end
  if redis.call('ZSCORE', members, line.PAUSED) then return end
  local started = redis.call('ZCOUNT', members, '-inf', '-inf')
  for _, other in ipairs(redis.call('ZRANGE', members, started, line.limit(c, key))) do
    if admit.one(c, other, true) then return admit.lane(c, key) end
    if redis.call('HGET', c.P .. 'job:' .. other, 'exclusive') then return end
  end
end

-- Puts a job that was in no line (scheduled, collected …) into its lines. It waits for them from now on. Names and
-- values that follow the score are written with it.
function admit.join(c, id, keys, score, ...)
  redis.call('HSET', c.P .. 'job:' .. id, 'state', 'waiting', 'joined', c.now_text, ...)
  line.enter(c, id, keys, score)
  admit.lane(c, keys[1])
end

return admit
