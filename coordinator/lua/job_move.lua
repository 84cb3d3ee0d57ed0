-- job_move: a job that was not started gets a new pair (priority, sequence), in all its lines at once.
-- KEYS prefix
-- ARGV id priority to why by asked
--   priority: '' = as it is; to: back | front of those of its priority; asked: token of who asks, by which its last move
--   is known when asked for again: it is made once; '' = none
-- returns {state or '', moved, rung}; '' = no such job; moved: 1, or 0 where it was started, or stands in no line
-- include halt
local id, priority, to, why, by, asked = unpack(ARGV)
id = redis.call('HGET', P .. 'job:' .. id, 'alias') or id
local name, job = P .. 'job:' .. id, read(id)
if not job then return {'', 0, rung} end
if asked ~= '' and redis.call('HGET', name, 'move') == asked then return {job.state, 1, rung} end
if job.state ~= 'waiting' and job.state ~= 'scheduled' then return {job.state, 0, rung} end
if priority == '' then priority = redis.call('HGET', name, 'priority') or 0 end
local score = new_score(priority, to)
local act = cjson.encode({why = why, by = by, at = now})
redis.call('HSET', name, 'priority', priority, 'moved', act, 'move', asked)
if job.state == 'scheduled' then
  redis.call('HSET', name, 'score', score)
  return {job.state, 1, rung}
end
local keys = keys_of(job.keys)
redis.call('HDEL', name, 'score')
enter(id, keys, score)
for _, key in ipairs(keys) do admit(key) end
ring_readied(2000)
return {redis.call('HGET', name, 'state'), 1, rung}
