-- Retention: how much is kept of jobs that are over, and for how long. kept = successes that the bound may drop, oldest
-- first; melted = ids of ended jobs, by the time at which their aliases are forgotten.
local retention = {}

local MOST = 1000 -- the most aliases that one call forgets

-- The part of a token that a success keeps, to recognize its holder's repeated request.
function retention.trace_of(token)
  return #token > 16 and string.sub(token, 1, 8) .. string.sub(token, -8) or token
end

-- True if the job succeeded, and its result and links have been sent.
function retention.is_faded(job) return job.state == 'succeeded' and not job.limits end

local function drop(c, id)
  local name = c.P .. 'job:' .. id
  local state, limits, aliases = unpack(redis.call('HMGET', name, 'state', 'limits', 'aliases'))
  if state ~= 'succeeded' or limits then return end
  redis.call('UNLINK', name)
  if aliases then redis.call('ZADD', c.P .. 'melted', c.wall, id) end
end

-- Drops the oldest successes beyond `most`.
local function bound(c, id, most, keep)
  local kept = c.P .. 'kept'
  local count = redis.call('RPUSH', kept, id)
  redis.call('PEXPIRE', kept, keep)
  for _ = 1, math.min(count - most, 4) do drop(c, redis.call('LPOP', kept)) end
end

-- Packs the numbers of a success into one text: submitted; ms from there to the first claim, to the last one and to the
-- end; µs from the last claim to the fence; attempt; node.
local function past_of(job, ended)
  return string.format('%s %.0f %.0f %.0f %.0f %s %s', job.submitted, job.taken - job.submitted,
    job.started - job.submitted, ended - job.submitted, job.fence - job.started * 1000, job.attempt, job.node)
end

local function limits_of(job)
  return string.match(job.limits, '^%S+ %S+ %S+ %S+ (%S+) (%S+) ?(%S*)$')
end

local function keep_for(job, ms) redis.call('PEXPIRE', job.name, ms) end

-- Ends a success that owes nothing directly in its short form, which most do. False: the job needs the long way.
function retention.end_faded(c, job, result)
  if not job.submitted or job.seldom or job.tell then return false end
  local keep, _, most = limits_of(job)
  if most ~= '' then return false end
  redis.call('HSET', job.name, 'state', 'succeeded', 'result', result, 'past', past_of(job, c.now),
    'token', retention.trace_of(job.token))
  redis.call('HDEL', job.name, 'submitted', 'taken', 'started', 'fence', 'attempt', 'node', 'runner', 'class', 'limits',
    'tell')
  keep_for(job, keep)
  return true
end

-- Shortens the record of a success that owes nothing any more.
function retention.fade(c, id)
  local job = record.fill({name = c.P .. 'job:' .. id}, 'state', 'submitted', 'taken', 'started', 'ended', 'fence',
    'attempt', 'node', 'token', 'limits', 'seldom', 'awaited')
  if job.state ~= 'succeeded' or not job.limits then return end
  redis.call('HSET', job.name, 'past', past_of(job, job.ended), 'token', retention.trace_of(job.token))
  redis.call('HDEL', job.name, 'submitted', 'taken', 'started', 'ended', 'fence', 'attempt', 'node', 'runner', 'class',
    'limits', 'tell', 'offers')
  if job.seldom then
    local last = redis.call('HGET', job.name, 'last')
    if last then redis.call('HSET', job.name, 'last', retention.trace_of(last)) end
    redis.call('HDEL', job.name, 'seldom', 'value', 'values', 'home', 'undo', 'hold', 'forgiven', 'conflicts', 'parent',
      'slots', 'condemned', 'stop', 'score', 'till', 'expires', 'awaited', 'shared',
      'tick')
  end
  local keep, _, most = limits_of(job)
  if most ~= '' and not job.awaited then bound(c, id, tonumber(most), keep) end
end

-- Sets the lifetime of a record whose job is over. heard: number of clients that listened for its end; owed: its result
-- or links are still to be sent.
function retention.begin(c, id, job, state, heard, owed)
  local success, failure, most = limits_of(job)
  local keep = state == 'succeeded' and success or failure
  keep_for(job, keep)
  if job.aliases then redis.call('ZADD', c.P .. 'melted', c.wall + keep, id) end
  if state ~= 'succeeded' or not job.class then return end
  local parent = most ~= '' and job.parent and redis.call('HGET', c.P .. 'job:' .. job.parent, 'state')
  if most ~= '' and (heard > 0 or parent and not states.TERMINAL[parent]) then record.note(c, id, 'awaited', 1) end
  if not owed then retention.fade(c, id) end
end

-- Notes that results and links of these jobs were sent: args from index `from`. Returns how many were owed.
function retention.told(c, app, args, from)
  for i = from, #args do retention.fade(c, args[i]) end
  return redis.call('ZREM', c.P .. 'unsent:' .. app, unpack(args, from))
end

-- Keeps the record of a job that is to run again, and its aliases.
function retention.undo(c, id, job)
  redis.call('PERSIST', job.name)
  redis.call('ZREM', c.P .. 'melted', id)
end

-- Forgets aliases of jobs that are gone, some at each call.
function retention.forget_melted(c)
  local left = MOST
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', c.P .. 'melted', '-inf', c.wall, 'LIMIT', 0, 100)) do
    if left > 0 and redis.call('EXISTS', c.P .. 'job:' .. id) == 1 then
      redis.call('ZADD', c.P .. 'melted', c.wall + 1000, id)
    elseif left > 0 then
      local aliases = redis.call('LPOP', c.P .. 'aliases:' .. id, left) or {}
      for _, alias in ipairs(aliases) do redis.call('UNLINK', c.P .. 'job:' .. alias) end
      if #aliases < left then redis.call('ZREM', c.P .. 'melted', id) end
      left = left - #aliases
    end
  end
end

return retention
