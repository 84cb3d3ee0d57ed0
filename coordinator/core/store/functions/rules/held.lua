-- Lanes held by plain code: an entry in the line whose runner is the calling process.
local held = {}

function held.limits(lifetime) return '0 0 0 ' .. lifetime .. ' 5000 5000' end

-- Takes a free lane at once, with few commands, and returns the fence; nil if the lane is not free.
function held.take(c, id, key, token, ttl, lifetime)
  local name, members = c.P .. 'job:' .. id, c.P .. 'line:' .. key
  if redis.call('EXISTS', name, members, c.P .. 'lock:' .. key) > 0 then return nil end
  local fence = locks.next_fence(c)
  redis.call('HSET', name, 'state', 'running', 'keys', key, 'limits', held.limits(lifetime), 'token', token, 'ttl', ttl,
    'fence', fence, 'attempt', '1', 'submitted', c.now_text, 'taken', c.now_text, 'started', c.now_text)
  redis.call('ZADD', members, '-inf', id)
  redis.call('ZADD', c.P .. 'lanes', '0', key)
  locks.acquire(c, {key}, token, ttl)
  redis.call('ZADD', c.P .. 'locks', base.text_of(c.uptime + ttl), id)
  return fence
end

-- Releases the lane, or removes its waiter; the next in line goes on. Returns released or lost; asked again: `released`
-- while the note of it is kept.
function held.give_up(c, id, token)
  local name = c.P .. 'job:' .. id
  local state, held_by, key, uses = unpack(redis.call('HMGET', name, 'state', 'token', 'keys', 'uses'))
  if held_by ~= token then return 'lost' end
  local members = c.P .. 'line:' .. key
  local heads = redis.call('ZRANGE', members, '0', '1')
  -- Nobody stands behind: fewer commands suffice.
  if state == 'running' and heads[1] == id and not heads[2] and not uses then
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

-- True if the lane is held under this token by a lease that has not ended.
function held.is_ours(c, key, token) return not locks.is_lapsed(c, {keys = key, token = token}) end

-- Releases a lane for good, without a note, since nobody repeats this request.
function held.drop(c, id, key, token)
  local members = c.P .. 'line:' .. key
  if redis.call('ZCARD', members) > 1 then return held.give_up(c, id, token) end
  redis.call('DEL', members, c.P .. 'lock:' .. key, c.P .. 'job:' .. id)
  redis.call('ZREM', c.P .. 'lanes', key)
  redis.call('ZREM', c.P .. 'locks', id)
end

-- Reads the grab of a lane. It counts as abandoned if it runs, but its process or job is gone.
function held.grab(c, lane)
  local grab = grabs.read(c, lane)
  if grab.state ~= 'running' then return grab end
  if grab.token ~= '' then settle.end_lapsed(c, lane) end
  local job = record.read(c, grab.job)
  if not job or grab.token ~= '' and (job.state ~= 'running' or job.token ~= grab.token) then
    grab.state = 'abandoned'
  end
  return grab
end

return held
