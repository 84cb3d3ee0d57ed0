-- Shared: a job ends.
-- include lane
-- include locking

-- Result and links of a job with `tell` are owed: after how many ms another node may send them.
local tell_after = 0

-- Out of all lines with a terminal state; frees memory first, then whoever stands behind goes on.
local function leave(id, job, state, ...)
  local keys, name = keys_of(job.keys), job.name
  for _, key in ipairs(keys) do redis.call('ZREM', P .. 'line:' .. key, id) end
  redis.call('ZREM', P .. leases_of(job), id)
  if job.melt then
    -- include unmelt
    unmelt(id, job, keys)
  end
  if job.seldom then
    -- include apart
    away(id, job)
  end
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
    redis.call('HINCRBY', P .. 'counts', state, '1')
    redis.call('PUBLISH', P .. 'done:' .. id, state)
  end
  local app = job.tell and app_of(job) or ''
  if app ~= '' then redis.call('ZADD', P .. 'unsent:' .. app, text_of(now + tell_after), id) end
  if job.parent then
    -- include look
    look_at(job.parent)
  end
  for _, key in ipairs(keys) do admit(key) end
  return state
end
