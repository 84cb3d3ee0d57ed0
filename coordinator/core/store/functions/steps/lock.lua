-- Locks in plain code: a process holds a lane without a job.

-- Removes a waiter that would wait for itself. Nothing is kept of it, so a repeated request is refused again.
local function refused(c, id)
  local ring = rings.find(c, id)
  if not ring then return nil end
  local job = record.read(c, id)
  settle.finish(c, id, job, 'failed')
  redis.call('DEL', job.name)
  return ring
end

step.define('lock_take', {}, function(c, id, key, when_busy, token, ttl, lifetime, uses, args, from)
  local fence = uses == '' and held.take(c, id, key, token, ttl, lifetime)
  if fence then return {'started', 0, id, fence} end
  local fields = {'limits', held.limits(lifetime), 'token', token, 'ttl', ttl, 'seen', base.text_of(c.uptime)}
  for name, value in pairs({nested = #args >= from and 1, uses = uses ~= '' and uses, seldom = uses ~= '' and 1}) do
    if value then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  local reply = submit.job(c, id, key, when_busy, 0, '0', '', fields, 1)
  if reply[1] ~= 'queued' then return reply end
  for i = from, #args, 2 do rings.await(c, args[i], args[i + 1], id) end
  local ring = #args >= from and refused(c, id)
  return ring and {'deadlock', -1, ring, ''} or reply
end)

step.define('lock_wait', {'allow-oom'}, function(c, id)
  local job = record.read(c, id)
  if job and job.state == 'waiting' then
    redis.call('HSET', job.name, 'seen', base.text_of(c.uptime))
    for _, key in ipairs(record.keys_of(job.keys)) do settle.end_lapsed(c, key) end
    job = record.read(c, id)
  end
  if not job then return {'', ''} end
  local fence, ttl, nested = unpack(redis.call('HMGET', job.name, 'fence', 'ttl', 'nested'))
  if job.state == 'running' then
    locks.renew(c, record.keys_of(job.keys), job.token, ttl)
    redis.call('ZADD', c.P .. 'locks', c.uptime + ttl, id)
  end
  local ring = nested and job.state == 'waiting' and refused(c, id)
  if ring then return {'deadlock', ring} end
  return {job.state, fence or ''}
end)

step.define('lock_release', {'allow-oom'}, function(c, id, token)
  return held.give_up(c, id, token)
end)
