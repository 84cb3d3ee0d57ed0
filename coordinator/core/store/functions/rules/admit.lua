-- Admission: decides which waiting jobs may start, and makes them ready.
local admit = {}

-- True if the job may start by its places in line.
function admit.in_front(c, id, keys)
  for _, key in ipairs(keys) do
    if redis.call('ZRANGE', c.P .. 'line:' .. key, 0, 0)[1] ~= id then return false end
  end
  return true
end

-- The most dead waiters for locks that one step removes from their lines.
local MOST_PASSED = 100

local function pass_over(c, id, job, keys)
  if c.passed >= MOST_PASSED or not locks.is_silent(c, job.seen) then return false end
  c.passed = c.passed + 1
  line.leave(c, id, keys)
  redis.call('HSET', job.name, 'state', 'failed')
  redis.call('PEXPIRE', job.name, 5000)
  quotas.withdraw(c, id, job)
  return true
end

-- Grants a lock in plain code to its waiter at once, since no runner is needed. The waiter has a short time to show
-- that it still lives, and then gets the full ttl (lock_wait). The waiter that called this very step gets it at once;
-- any other is woken.
local function grant(c, id, job, keys)
  local ttl, waits = tonumber(job.ttl), c.asking ~= id
  if waits then ttl = math.min(ttl, locks.SILENT) end
  if not locks.acquire(c, keys, job.token, ttl) then return false end
  quotas.take(c, id, job)
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

-- True if a lock in plain code lacks a quota, and stands in its queue now.
local function lacks_quota(c, id, job)
  local index, wait = quotas.lacking(c, id, job, true)
  if index then quotas.queue(c, id, job, index, wait) end
  return index
end

-- Makes the job ready, or grants the lock, if it may start. Returns true for a dead waiter, which left the line.
local function try_admit(c, id)
  local job = record.fill({name = c.P .. 'job:' .. id}, 'state', 'keys', 'class', 'task', 'group', 'priority', 'seldom')
  if job.state ~= 'waiting' or c.fresh and c.fresh.id == id then return end
  if job.seldom == '1' then record.fill(job, 'uses', 'lack', 'lacked', 'apart') else record.fill_more(job) end
  local keys = record.keys_of(job.keys)
  if #keys > 1 and not admit.in_front(c, id, keys) then return end
  if job.class then
    local since = job.lacked
    if quotas.hold_back(c, id, job) then return end
    job.rule = c.paused and 'paused ' .. c.paused or since and 'quota ' .. since
    ready.make(c, id, job)
  else
    record.fill(job, 'token', 'ttl', 'seen')
    if pass_over(c, id, job, keys) then return true end
    if job.uses and lacks_quota(c, id, job) then return end
    if grant(c, id, job, keys) and job.uses then quotas.take_back(c, id, job) end
  end
end

-- As try_admit. An error of a damaged record does not stop the step for the other jobs.
function admit.one(c, id)
  local passed
  base.guarded(id, function() passed = try_admit(c, id) end)
  return passed
end

-- Starts the first job of the lane if it may start now, after a place in front became free.
function admit.lane(c, key)
  local heads = redis.call('ZRANGE', c.P .. 'line:' .. key, '0', '1')
  local id = heads[1]
  if not id then return redis.call('ZREM', c.P .. 'lanes', key) end
  if not heads[2] or line.is_mark(id) then line.note(c, key, heads) end
  if not line.is_mark(id) and admit.one(c, id) then return admit.lane(c, key) end
end

-- Lets the first job of a kind in a quota's queue go on. Returns false if it still lacks this quota.
local function try_first(c, q, id, kind)
  local job = record.read(c, id)
  local good = job and job.lack == q and quotas.is_of(job, q, kind)
  if not good or job.state ~= 'waiting' and job.state ~= 'ready' then
    queues.remove(c, q, id, kind)
    return true
  end
  if job.state == 'ready' then -- it was started before, and keeps the front of its lanes
    if quotas.hold_back(c, id, job) then return job.lack ~= q end
    ready.put_back(c, id, job)
    base.add(c, 'readied', job)
    return true
  end
  local keys = record.keys_of(job.keys)
  if not admit.in_front(c, id, keys) then
    quotas.withdraw(c, id, job)
  elseif admit.one(c, id) then
    for _, key in ipairs(keys) do admit.lane(c, key) end
  end
  return redis.call('HGET', job.name, 'lack') ~= q
end

-- The most jobs of a queue that one step lets go on.
local MOST_FREED = 16

-- Looks at the next kind of a quota's queue. c.going: the quota; the kinds passed, which hold up no other (as `ahead`
-- knows by it), and how many; and how much was used then: once that is otherwise, the step looks at all kinds again.
-- Returns true if its first job went on, nil if nobody else may.
local function pass_or_free(c, q)
  local going, used = c.going, quotas.read(c, q).used
  if going.used ~= used then going.used, going.passed, going.count = used, {}, 0 end
  local kind = queues.kind_at(c, q, going.count)
  if not kind or going.count >= queues.MOST then return nil end
  local id, moved = queues.first(c, q, kind), true
  if not base.guarded(id, function() moved = try_first(c, q, id, kind) end) then return nil end
  if moved then return true end
  if quotas.holds_up(c, quotas.read(c, q), id) then return nil end
  going.passed[kind], going.count = true, going.count + 1
  return false
end

local function let_go_on(c, q)
  if queues.is_empty(c, q) then return queues.note_empty(c, q) end
  local freed, moved = 0, false
  c.going = {q = q}
  while freed < MOST_FREED and moved ~= nil do
    moved = pass_or_free(c, q)
    if moved then freed = freed + 1 end
  end
  c.going = false
  if freed == MOST_FREED then quotas.look_after(c, q, 0) end
end

-- Lets the queues go on of the quotas of which units came back in this step.
function admit.freed(c)
  while c.freed do
    local names, seen = c.freed, {}
    c.freed = false
    for _, q in ipairs(names) do
      if not seen[q] then let_go_on(c, q) end
      seen[q] = true
    end
  end
end

-- Adds a job to all its lines. A job that it overtakes there stands in no queue of a quota until its turn comes again.
-- Returns true if it is in front of all; and those that it overtook, nil: none.
function admit.enter(c, id, keys, score)
  local first, overtaken = line.enter(c, id, keys, score)
  for _, other in ipairs(overtaken or {}) do
    local job = record.read(c, other)
    if job and job.state == 'waiting' then quotas.withdraw(c, other, job) end
  end
  return first, overtaken
end

-- Puts a job that was in no line (scheduled, collected …) into its lines. It waits for them from now on. Names and
-- values that follow the score are written with it.
function admit.join(c, id, keys, score, ...)
  redis.call('HSET', c.P .. 'job:' .. id, 'state', 'waiting', 'joined', c.now_text, ...)
  admit.enter(c, id, keys, score)
  if keys[1] then admit.lane(c, keys[1]) else admit.one(c, id) end
end

return admit
