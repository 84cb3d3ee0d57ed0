-- Retention: how much is kept of jobs that are over, and for how long. kept = successes that the bound may drop, oldest
-- first; coalesced = ids of ended jobs, by the time at which their aliases are forgotten.
local retention = {}

local LIGHT, NONE = {'uses', 'seldom', 'score'}, {} -- what else a job has that only uses quotas

local MOST = 1000 -- the most aliases that one call forgets

local FIRST = 60000 -- ms for which a record is kept at least whose result or links are owed: maintenance tries before

-- The part of a token that a success keeps, to recognize its holder's repeated request.
function retention.trace_of(token)
  return #token > 16 and string.sub(token, 1, 8) .. string.sub(token, -8) or token
end

local function drop(c, id)
  local name = c.P .. 'job:' .. id
  local state, later, aliases = unpack(redis.call('HMGET', name, 'state', 'once_sent', 'aliases'))
  if state ~= 'succeeded' or later then return end
  redis.call('UNLINK', name)
  if aliases then redis.call('ZADD', c.P .. 'coalesced', c.wall, id) end
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
  return string.format('%s %d %d %d %d %s %s', job.submitted, job.taken - job.submitted, job.started - job.submitted,
    ended - job.submitted, job.fence - job.started * 1000, job.attempt, job.node)
end

-- Shortens the record of a success to what tells about it, and what maintenance needs to send its end. Writes these
-- fields.
function retention.fade(c, job, ...)
  record.write(job.name, 'past', past_of(job, c.now), 'token', retention.trace_of(job.token), ...)
  redis.call('HDEL', job.name, 'submitted', 'taken', 'started', 'fence', 'attempt', 'node', 'runner', 'class', 'limits',
    'tell', 'by', unpack(job.light and LIGHT or NONE))
  if not job.seldom then return end
  redis.call('HDEL', job.name, 'value', 'values', 'home', 'undo', 'hold', 'forgiven', 'conflicts', 'parent', 'uses',
    'condemned', 'stop', 'score', 'till', 'expires', 'tick', 'joined', 'waited', 'blocks', 'given', 'not_before')
end

-- True if the bound on successes may drop this one: neither a listener nor its parent waits for its end.
local function is_bounded(c, job, state, listeners, most)
  if most == '' or state ~= 'succeeded' or not job.class or listeners > 0 then return false end
  local parent = job.parent and redis.call('HGET', c.P .. 'job:' .. job.parent, 'state')
  return not parent or states.TERMINAL[parent]
end

-- Sets the lifetime of a record whose job is over. listeners: number of clients that wait for its end; owed: its result
-- or links are still to be sent. Until then the bound drops no record, and none goes before FIRST.
function retention.begin(c, id, job, state, listeners, owed)
  local success, failure, most = record.kept(job)
  local keep = state == 'succeeded' and success or failure
  if job.blocks and tonumber(keep) < FIRST then keep = base.text_of(FIRST) end -- its dependants read it
  local bounded = not job.blocks and is_bounded(c, job, state, listeners, most)
  local short = owed and tonumber(keep) < FIRST
  redis.call('PEXPIRE', job.name, short and base.text_of(FIRST) or keep)
  if job.aliases then redis.call('ZADD', c.P .. 'coalesced', c.wall + keep, id) end
  if bounded and not owed then bound(c, id, tonumber(most), keep) end
  if short or bounded and owed then
    redis.call('HSET', job.name, 'once_sent', keep .. ' ' .. (bounded and most or ''))
  end
end

-- Ends the time for which a record was kept only since its result or links were owed. A longer one has another reason.
local function release(name, keep)
  local left, offered = redis.call('PTTL', name), redis.call('HGET', name, 'offers') -- maintenance kept it for longer
  if left > keep and (offered or left <= FIRST) then redis.call('PEXPIRE', name, base.text_of(keep)) end
end

-- Notes that results and links of these jobs were sent: args from index `from`. Returns how many were owed.
function retention.sent(c, app, args, from)
  for i = from, #args do
    local name = c.P .. 'job:' .. args[i]
    local keep, most = string.match(redis.call('HGET', name, 'once_sent') or '', '^(%d+) (%d*)$')
    if keep then
      redis.call('HDEL', name, 'once_sent')
      if tonumber(keep) < FIRST then release(name, tonumber(keep)) end
      if most ~= '' then bound(c, args[i], tonumber(most), keep) end
    end
  end
  return redis.call('ZREM', c.P .. 'unsent:' .. app, unpack(args, from))
end

-- Keeps the record of a job that is to run again, and its aliases.
function retention.undo(c, id, job)
  redis.call('PERSIST', job.name)
  redis.call('ZREM', c.P .. 'coalesced', id)
end

-- Forgets aliases of jobs that are gone, some at each call.
function retention.forget_coalesced(c)
  local left = MOST
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', c.P .. 'coalesced', '-inf', c.wall, 'LIMIT', 0, 100)) do
    if left > 0 and redis.call('EXISTS', c.P .. 'job:' .. id) == 1 then
      redis.call('ZADD', c.P .. 'coalesced', c.wall + 1000, id)
    elseif left > 0 then
      local aliases = redis.call('LPOP', c.P .. 'aliases:' .. id, left) or {}
      for _, alias in ipairs(aliases) do redis.call('UNLINK', c.P .. 'job:' .. alias) end
      if #aliases < left then redis.call('ZREM', c.P .. 'coalesced', id) end
      left = left - #aliases
    end
  end
end

return retention
