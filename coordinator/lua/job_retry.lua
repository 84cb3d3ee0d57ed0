-- job_retry: a held job goes on, a retrying one at once, one that ended badly again.
-- KEYS prefix
-- ARGV id why by to
--   to: of one that ended: back | front of those of its priority
-- returns {state or '', rung}: the state after the call; '' = no such job
-- include conclude
-- include join
local id, why, by, to = unpack(ARGV)
id = redis.call('HGET', P .. 'job:' .. id, 'alias') or id
local job, name = read(id), P .. 'job:' .. id
if not job then return {'', rung} end

local act = cjson.encode({why = why, by = by, at = now})
-- All its attempts and losses are before it once more; what was undone is done again from the first step.
local function anew()
  local was = redis.call('HMGET', name, 'rollback', 'home', 'spec')
  if was[1] == 'done' and was[2] then
    local limit, task, class = string.match(was[2], '^(%d+)\n([^\n]*)\n(.*)$')
    local limits = string.gsub(job.limits, '^(%S+ %S+) %S+', '%1 ' .. limit)
    redis.call('HSET', name, 'step', cjson.decode(was[3]).first, 'limits', limits, 'task', task, 'class', class)
    redis.call('HDEL', name, 'value')
    job.task, job.class = task, class
  end
  note(id, 'forgiven', job.attempt or 0, 'losses', 0, 'phase', '', 'retried', act)
  redis.call('HDEL', name, 'stop', 'ends', 'rollback', 'fault', 'conflicts')
end

if job.state == 'retrying' then
  redis.call('ZREM', P .. 'due', id)
  put_back(id, job, 'retried', act)
elseif job.state == 'held' then
  anew()
  redis.call('ZADD', P .. 'expiry', now + limits_of(job.limits)[4], id)
  redis.call('HSET', name, 'taken', now)
  put_back(id, job)
elseif TERMINAL[job.state] and job.state ~= 'succeeded' and job.class then
  redis.call('PERSIST', name)
  if job.tell then redis.call('ZREM', P .. 'unsent:' .. app_of(job), id) end
  redis.call('PERSIST', P .. 'aliases:' .. id)
  for _, alias in ipairs(redis.call('LRANGE', P .. 'aliases:' .. id, 0, -1)) do
    redis.call('PERSIST', P .. 'job:' .. alias)
  end
  redis.call('HINCRBY', P .. 'counts', job.state, -1)
  anew()
  redis.call('HDEL', name, 'taken', 'ended', 'token', 'last', 'condemned', 'expires', 'score')
  join(id, keys_of(job.keys), new_score(redis.call('HGET', name, 'priority') or 0, to))
end
ring_readied(2000)
return {redis.call('HGET', name, 'state'), rung}
