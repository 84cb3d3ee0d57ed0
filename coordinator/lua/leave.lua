-- Shared: a job ends.
-- include lane
-- include apart

-- Result and links of a job with `tell` are owed: after how many ms another node may send them.
local tell_after = 0

-- From here nothing melts into it any more: it starts, or it is over.
local function unmelt(id, job, keys)
  redis.call('DEL', P .. 'melt:' .. job.melt .. ':' .. keys[1])
  redis.call('HDEL', P .. 'job:' .. id, 'melt')
end

-- A parked job waits for this one: its app's wardens look at once.
local function look_at(parent)
  local job = read(parent)
  if job and job.state == 'parked' then redis.call('ZADD', P .. 'parked:' .. app_of(job), 0, parent) end
end

-- Out of all lines with a terminal state; frees memory first, then whoever stands behind goes on.
local function leave(id, job, state, ...)
  local keys, name = keys_of(job.keys), job.name
  for _, key in ipairs(keys) do redis.call('ZREM', P .. 'line:' .. key, id) end
  redis.call('ZREM', P .. leases_of(job), id)
  if job.melt then unmelt(id, job, keys) end
  if job.seldom then away(id, job) end
  if job.token then unlock_all(keys, job.token, job.slots) end
  redis.call('HSET', name, 'state', state, 'ended', now_text, ...)
  local success, failure = string.match(job.limits, '^%S+ %S+ %S+ %S+ (%S+) (%S+)')
  local keep = state == 'succeeded' and success or failure
  redis.call('PEXPIRE', name, keep)
  if job.aliases then -- the ids that melted into it are known as long as it is
    for _, alias in ipairs(redis.call('LRANGE', P .. 'aliases:' .. id, 0, -1)) do
      redis.call('PEXPIRE', P .. 'job:' .. alias, keep)
    end
    redis.call('PEXPIRE', P .. 'aliases:' .. id, keep)
  end
  if job.class then
    redis.call('HINCRBY', P .. 'counts', state, 1)
    redis.call('PUBLISH', P .. 'done:' .. id, state)
  end
  local app = job.tell and app_of(job) or ''
  if app ~= '' then redis.call('ZADD', P .. 'unsent:' .. app, now + tell_after, id) end
  if job.parent then look_at(job.parent) end
  for _, key in ipairs(keys) do admit(key) end
  return state
end
