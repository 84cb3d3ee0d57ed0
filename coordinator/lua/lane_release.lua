-- lane_release: an operator takes the lane from its first job; the next goes on at once, the old holder is fenced.
-- KEYS prefix
-- ARGV key why by holder
--   holder: release it from this job only; '' = from whoever was started and is not over
-- returns {id or '', rung}; '' = nobody held it
-- include conclude
-- include drop
-- include full
-- include standing
local key, why, by, holder = unpack(ARGV)
local first = holder ~= '' and redis.call('ZSCORE', P .. 'line:' .. key, holder) and holder or holder_of(key)
local job = first and read(first)
if not job or not job.taken or (holder ~= '' and holder ~= first) then return {'', rung} end
though_full()
if job.state == 'ready' then drop(first, job) end
if job.state == 'running' and job.class and redis.call('HEXISTS', P .. 'work:' .. job.node, job.runner) == 1 then
  redis.call('HSET', P .. 'work:' .. job.node, job.runner, job.token .. ' 1 ' .. first)
end
if job.phase == 'rollback' then
  undone(first, job)
  redis.call('HSET', P .. 'job:' .. first, 'rollback', 'failed')
end
leave(first, job, 'cancelled', 'error', cjson.encode({type = 'Released', message = why, by = by, at = now}))
ring_readied(2000)
return {first, rung}
