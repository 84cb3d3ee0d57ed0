-- Lanes: operators steer them by marks in front of the line, and release them from their holders.

-- Adds a mark. In a line with a mark all started jobs are pinned, so this pins the one that was started before.
local function mark(c, key, which)
  local members = c.P .. 'line:' .. key
  local head = redis.call('ZRANGE', members, 0, 0)[1]
  local job = head and not line.is_mark(head) and redis.call('HMGET', c.P .. 'job:' .. head, 'state', 'keys')
  if job and job[1] ~= 'waiting' then line.pin(c, head, record.keys_of(job[2])) end
  redis.call('ZADD', members, '-inf', which)
  redis.call('ZADD', c.P .. 'lanes', 0, key)
end

-- Puts a ready job back to its place. The job behind it in another line may be first now.
local function unready(c, id, job)
  ready.drop(c, id, job)
  redis.call('HSET', job.name, 'state', 'waiting')
  local keys, score = record.keys_of(job.keys), redis.call('HGET', job.name, 'score')
  if not score then return end
  redis.call('HDEL', job.name, 'score', 'rule')
  for _, key in ipairs(keys) do redis.call('ZADD', c.P .. 'line:' .. key, 'XX', score, id) end
  line.changed(c)
  for _, key in ipairs(keys) do admit.lane(c, key) end
end

-- Puts the ready jobs that were never claimed back to their places.
local function call_back(c, key)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', c.P .. 'line:' .. key, '-inf', '-inf')) do
    local job = not line.is_mark(id) and record.read(c, id)
    if job and job.state == 'ready' and not job.taken then unready(c, id, job) end
  end
end

-- lane_limit: sets how many jobs of this lane may run at once; default 1, at 0 nothing starts. Started jobs go on.
-- args key limit act
-- returns the limit before; asked again: the limit
step.define('lane_limit', {'allow-oom'}, function(c, args)
  local key, limit, act = unpack(args)
  local before, known = line.limit(c, key), redis.call('HGET', c.P .. 'limits', key)
  act = audit.act(c, act)
  local same = limit == base.text_of(before)
  if same and (not known or audit.is_same(string.match(known, '{.*'), act)) then return before end
  if limit == '1' then
    redis.call('HDEL', c.P .. 'limits', key)
    redis.call('ZREM', c.P .. 'line:' .. key, line.LIMIT)
  else
    mark(c, key, line.LIMIT)
    redis.call('HSET', c.P .. 'limits', key, limit .. audit.kept(act))
  end
  if tonumber(limit) < before then call_back(c, key) end
  admit.lane(c, key)
  audit.note(c, act, 'limit', 'lane', key, base.text_of(before), limit)
  return before
end)

-- lane_pause: lets no further job of this lane start; started jobs go on.
-- args key act
-- returns 1, or 0 when it was paused already; asked again: 0
step.define('lane_pause', {'allow-oom'}, function(c, args)
  local key, act = unpack(args)
  local paused = redis.call('ZSCORE', c.P .. 'line:' .. key, line.PAUSED)
  act = audit.act(c, act)
  if paused and audit.is_same(redis.call('HGET', c.P .. 'paused', key), act) then return 0 end
  redis.call('HSET', c.P .. 'paused', key, audit.kept(act))
  audit.note(c, act, 'pause', 'lane', key, paused and 'paused' or 'open', 'paused')
  if paused then return 0 end
  mark(c, key, line.PAUSED)
  call_back(c, key)
  return 1
end)

-- lane_resume: lets the lane go on.
-- args key act
-- returns 1, or 0 when it was not paused; asked again: 0
step.define('lane_resume', {'allow-oom'}, function(c, args)
  local key, act = unpack(args)
  local paused = redis.call('HGET', c.P .. 'paused', key)
  redis.call('HDEL', c.P .. 'paused', key)
  if redis.call('ZREM', c.P .. 'line:' .. key, line.PAUSED) == 0 then return 0 end
  act = audit.act(c, act)
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
  return 1
end)

-- lane_release: takes the lane from its holder for an operator; the next job goes on, the old one is fenced out.
-- args key act holder
--   holder: only if this job holds it; '' = the first of the started jobs
-- returns the id of the former holder, '' = there was none; asked again with a holder: ''
step.define('lane_release', {'allow-oom'}, function(c, args)
  local key, act, holder = unpack(args)
  local first = holder
  if holder == '' then first = line.first_started(c, key) end
  local job = first and redis.call('ZSCORE', c.P .. 'line:' .. key, first) and record.read(c, first)
  if not job or not job.taken then return '' end
  if job.state == 'ready' then ready.drop(c, first, job) end
  if job.state == 'running' and job.class and redis.call('HEXISTS', c.P .. 'work:' .. job.node, job.runner) == 1 then
    redis.call('HSET', c.P .. 'work:' .. job.node, job.runner, job.token .. ' 1 ' .. first)
  end
  if job.phase == 'rollback' then
    settle.end_rollback(c, first, job)
    redis.call('HSET', job.name, 'rollback', 'failed')
  end
  act = audit.act(c, act)
  local detail = audit.detail(act, 'Released', c.wall)
  settle.finish(c, first, job, 'cancelled', 'error', detail)
  audit.note(c, act, 'release', 'lane', key, first, line.holder(c, key) or '')
  return first
end)
