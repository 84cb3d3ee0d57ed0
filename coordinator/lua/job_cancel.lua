-- job_cancel: end a job that is not over. One that runs is marked; its node's warden stops its process first.
-- KEYS prefix
-- ARGV id why by
-- returns {state or '', rung}: the state after the call; '' = no such job
-- include conclude
-- include drop
-- include full
local id, why, by = unpack(ARGV)
id = redis.call('HGET', P .. 'job:' .. id, 'alias') or id
local job = read(id)
if not job then return {'', rung} end
if TERMINAL[job.state] then return {job.state, rung} end
though_full()
local detail = cjson.encode({type = 'Cancelled', message = why, by = by})
if job.phase == 'rollback' then return {'rolling_back', rung} end
if job.state == 'running' and job.class then
  if not job.stop then note(id, 'stop', 'cancelled', 'error', detail) end -- who was first is kept
  if redis.call('HEXISTS', P .. 'work:' .. job.node, job.runner) == 1 then
    redis.call('HSET', P .. 'work:' .. job.node, job.runner, job.token .. ' 1 ' .. id)
  end
  return {'running', rung}
end
if job.state == 'ready' then drop(id, job) end
local state = give_up(id, job, 'cancelled', 'error', detail)
ring_readied(2000)
return {state, rung}
