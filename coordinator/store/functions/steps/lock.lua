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

-- lock_take: takes a lock in plain code. A free lane is taken at once, with few commands; else it waits like a submit.
-- args id key when_busy token ttl lifetime holders…
--   when_busy: queue | skip; ttl, lifetime: ms; holders: id and token, in turns, of the job and the locks that the
--   caller's code holds meanwhile
-- returns as job_submit; deadlock: it would wait for itself, the ring is in place of the id, nothing was written; asked
--   again: duplicate, with the fence once it is granted
step.define('lock_take', {}, function(c, args)
  local id, key, when_busy, token, ttl, lifetime = unpack(args, 1, 6)
  local fence = held.take(c, id, key, token, ttl, lifetime)
  if fence then return {'started', 0, id, fence} end
  local fields = {'limits', held.limits(lifetime), 'token', token, 'ttl', ttl, 'seen', base.text_of(c.uptime)}
  if #args > 6 then fields[9], fields[10] = 'nested', 1 end
  local reply = submit.job(c, id, key, when_busy, 0, '0', '', fields, 1)
  if reply[1] ~= 'queued' then return reply end
  for i = 7, #args, 2 do rings.await(c, args[i], args[i + 1], id) end
  local ring = #args > 6 and refused(c, id)
  return ring and {'deadlock', -1, ring, ''} or reply
end)

-- lock_wait: asks whether the waiter may go on. When its turn has come, it gets the full ttl.
-- args id
-- returns {state or '', fence or ''}; deadlock, with the ring: it would wait for itself, and nothing is left of
--   it; asked again: the same, with the full ttl anew
step.define('lock_wait', {'allow-oom'}, function(c, args)
  local id = unpack(args)
  local job = record.read(c, id)
  if job and job.state == 'waiting' then
    redis.call('HSET', job.name, 'seen', base.text_of(c.uptime))
    for _, key in ipairs(record.keys_of(job.keys)) do settle.end_lapsed(c, key) end
    job = record.read(c, id)
  end
  if not job then return {'', ''} end
  local fence, ttl, nested = unpack(redis.call('HMGET', job.name, 'fence', 'ttl', 'nested'))
  if job.state == 'running' then
    locks.renew(c, id, record.keys_of(job.keys), job.token, job.slots, ttl)
    redis.call('ZADD', c.P .. 'locks', c.uptime + ttl, id)
  end
  local ring = nested and job.state == 'waiting' and refused(c, id)
  if ring then return {'deadlock', ring} end
  return {job.state, fence or ''}
end)

-- lock_release: releases a lock in plain code, or removes its waiter; the next in line goes on.
-- args id token
-- returns released or lost; asked again: 'released' while the note of it is kept
step.define('lock_release', {'allow-oom'}, function(c, args)
  local id, token = unpack(args)
  return held.give_up(c, id, token)
end)
