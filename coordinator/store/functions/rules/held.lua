-- A lane that is held by plain code: a place in its line whose runner is the calling process.
local held = {}

function held.limits(lifetime) return '0 0 0 ' .. lifetime .. ' 5000 5000' end

-- Takes a free lane at once, with few commands, and answers the fence; nil where the lane is not free.
function held.take(c, id, key, token, ttl, lifetime)
  local name, members = c.P .. 'job:' .. id, c.P .. 'line:' .. key
  if redis.call('EXISTS', name, members, c.P .. 'lock:' .. key) > 0 then return nil end
  local fence = locks.next_fence(c)
  redis.call('HSET', name, 'state', 'running', 'keys', key, 'limits', held.limits(lifetime), 'token', token, 'ttl', ttl,
    'fence', fence, 'attempt', '1', 'submitted', c.now_text, 'taken', c.now_text, 'started', c.now_text)
  redis.call('ZADD', members, '-inf', id)
  redis.call('ZADD', c.P .. 'lanes', '0', key)
  locks.acquire(c, id, {key}, token, ttl)
  redis.call('ZADD', c.P .. 'locks', base.text_of(c.uptime + ttl), id)
  return fence
end

-- The lane is given up, or its waiter goes away; the next in line goes on. released, or lost; again: `released` while
-- the note of it is kept.
function held.give_up(c, id, token)
  local name = c.P .. 'job:' .. id
  local state, held_by, key = unpack(redis.call('HMGET', name, 'state', 'token', 'keys'))
  if held_by ~= token then return 'lost' end
  local members = c.P .. 'line:' .. key
  local heads = redis.call('ZRANGE', members, '0', '1')
  if state == 'running' and heads[1] == id and not heads[2] then -- nobody stands behind: few commands do
    redis.call('DEL', members)
    redis.call('ZREM', c.P .. 'lanes', key)
    redis.call('ZREM', c.P .. 'locks', id)
    locks.release(c, {key}, token)
    redis.call('HSET', name, 'state', 'succeeded')
    redis.call('PEXPIRE', name, '5000')
    return 'released'
  end
  local job = record.read(c, id)
  if states.TERMINAL[job.state] then return job.state == 'succeeded' and 'released' or 'lost' end
  settle.finish(c, id, job, 'succeeded')
  return 'released'
end

-- Is the lane held under this token, by a lease that has not ended?
function held.is_ours(c, key, token) return not locks.is_lapsed(c, {keys = key, token = token}) end

-- A lane that is ours is given up for good: nothing is kept of it, since nobody asks for it again.
function held.drop(c, id, key, token)
  local members = c.P .. 'line:' .. key
  if redis.call('ZCARD', members) > 1 then return held.give_up(c, id, token) end
  redis.call('DEL', members, c.P .. 'lock:' .. key, c.P .. 'job:' .. id)
  redis.call('ZREM', c.P .. 'lanes', key)
  redis.call('ZREM', c.P .. 'locks', id)
end

-- The grab of a lane as it is. One that runs is abandoned where neither its process nor its job is there any more. The
-- end of a job that a node of an earlier version has run is noted now.
function held.grab(c, lane)
  local grab = grabs.read(c, lane)
  if grab.state ~= 'running' then return grab end
  if grab.token ~= '' then settle.end_lapsed(c, lane) end
  local job = record.read(c, grab.job)
  if job and grab.token == '' and states.TERMINAL[job.state] then
    grabs.end_job(c, lane, grab.job, redis.call('HGET', job.name, 'grab'), job.state, 0)
    return grabs.read(c, lane)
  end
  if not job or grab.token ~= '' and (job.state ~= 'running' or job.token ~= grab.token) then
    grab.state = 'abandoned'
  end
  return grab
end

return held
