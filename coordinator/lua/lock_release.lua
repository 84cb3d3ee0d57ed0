-- lock_release: a lock in plain code is given up (or its waiter goes away); whoever stands behind goes on.
-- KEYS prefix
-- ARGV id token
-- returns {'released' or 'lost', rung}; asked again: 'released' while the note of it is kept
local P = KEYS[1]
local id, token = unpack(ARGV)
local name = P .. 'job:' .. id
local about = redis.call('HMGET', name, 'state', 'token', 'keys')
if about[2] ~= token then return {'lost', {}} end
local line = P .. 'line:' .. about[3]
local ids = redis.call('ZRANGE', line, 0, 1)
if about[1] == 'running' and ids[1] == id and not ids[2] then -- nobody stands behind: few commands do
  redis.call('DEL', line)
  redis.call('ZREM', P .. 'lanes', about[3])
  redis.call('ZREM', P .. 'locks', id)
  if redis.call('GET', P .. 'lock:' .. about[3]) == token then redis.call('DEL', P .. 'lock:' .. about[3]) end
  redis.call('HSET', name, 'state', 'succeeded')
  redis.call('PEXPIRE', name, 5000)
  return {'released', {}}
end
-- include leave
-- include record
local job = read(id)
if TERMINAL[job.state] then return {job.state == 'succeeded' and 'released' or 'lost', rung} end
leave(id, job, 'succeeded')
ring_readied(2000)
return {'released', rung}
