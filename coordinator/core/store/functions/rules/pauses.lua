-- Pauses: a mark in front of a line, so that nothing in it starts. paused: key -> the act; pauses: the keys of pauses
-- that end by themselves, by the instant in ms of the installation's clock.
local pauses = {}

-- Adds the mark. In a line with it all started jobs are pinned, so this pins the one that was started before.
local function mark(c, key)
  local members = c.P .. 'line:' .. key
  local head = redis.call('ZRANGE', members, 0, 0)[1]
  local job = head and record.read(c, head)
  if job and job.state ~= 'waiting' then line.pin(c, head, record.keys_of(job.keys)) end
  if job and job.state == 'waiting' then quotas.withdraw(c, head, job) end
  redis.call('ZADD', members, '-inf', line.PAUSED)
  redis.call('ZADD', c.P .. 'lanes', 0, key)
end

-- Puts a ready job back to its place. The job behind it in another line may be first now.
local function unready(c, id, job)
  ready.drop(c, id, job)
  redis.call('HSET', job.name, 'state', 'waiting')
  local keys = record.keys_of(job.keys)
  if not line.unpin(c, id, job, keys) then return end
  for _, key in ipairs(keys) do admit.lane(c, key) end
end

-- Puts the ready jobs that were never claimed back to their places.
local function call_back(c, key)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', c.P .. 'line:' .. key, '-inf', '-inf')) do
    local job = not line.is_mark(id) and record.read(c, id)
    if job and job.state == 'ready' and not job.taken then unready(c, id, job) end
  end
end

-- Pauses a lane, until an instant (base.instant) where one is given. Returns 0 if it was paused already.
function pauses.begin(c, key, till, act)
  local paused = redis.call('ZSCORE', c.P .. 'line:' .. key, line.PAUSED)
  local own, ms = base.split(till or '+0')
  local ends = till and base.text_of(own and ms or ms - c.wall + c.now)
  local before = redis.call('ZSCORE', c.P .. 'pauses', key)
  local same = paused and audit.is_same(redis.call('HGET', c.P .. 'paused', key), act)
  if same and (before or nil) == ends then return 0 end
  redis.call('HSET', c.P .. 'paused', key, audit.kept(act))
  if ends then redis.call('ZADD', c.P .. 'pauses', ends, key) else redis.call('ZREM', c.P .. 'pauses', key) end
  audit.note(c, act, 'pause', 'lane', key, paused and 'paused' or 'open', 'paused')
  if paused then return 0 end
  mark(c, key)
  call_back(c, key)
  return 1
end

-- Lets a lane go on. Returns 0 if it was not paused.
function pauses.over(c, key, act)
  local paused = redis.call('HGET', c.P .. 'paused', key)
  redis.call('HDEL', c.P .. 'paused', key)
  redis.call('ZREM', c.P .. 'pauses', key)
  if redis.call('ZREM', c.P .. 'line:' .. key, line.PAUSED) == 0 then return 0 end
  local front = line.holder(c, key)
  local job = front and record.read(c, front)
  if job then
    redis.call('HSET', job.name, 'paused', paused, 'resumed', audit.kept(act))
    history.note(c, job, 'resumed', audit.kept(act))
  end
  audit.note(c, act, 'resume', 'lane', key, 'paused', 'open')
  local since = tonumber(string.match(paused or '', '"at": ?(%d+)')) or c.wall
  c.paused = base.text_of(since + c.now - c.wall)
  admit.lane(c, key)
  c.paused = false
  return 1
end

return pauses
