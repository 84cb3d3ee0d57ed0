-- Shared: give a runner the next ready job that its node may run.
-- include hand
-- include turns

-- Entries may be stale, too old, or of a task that this node has not registered.
local function pop(class, node, runner, token, ttl)
  local first = nil
  for _ = 1, 16 do
    local id, group, job = shift(class)
    if not id then return end
    job = job and fill_for_start(job) or fill_for_start({name = P .. 'job:' .. id}, 'state', 'keys', 'class', 'task')
    if job.state == 'ready' then
      if job.expires and tonumber(job.expires) < now and not job.taken then
        -- include leave
        leave(id, job, 'expired', 'error', '"not started in time"')
      else
        local fits_here = redis.call('SISMEMBER', P .. 'tasks:' .. node, job.task) == 1
        local taken = fits_here and start(id, job, node, runner, token, ttl)
        if taken then return taken end
        redis.call('HSET', job.name, 'state', 'ready') -- where it was to be taken directly, it does not say so yet
        put(id, class, group)
        if id == first then return end
        first = first or id
      end
    end
  end
end

-- Classes in turns, so that none starves another. A node that drains or is gone has no classes.
local function take(node, runner, token, ttl)
  local classes = redis.call('SMEMBERS', P .. 'classes:' .. node)
  for i = 1, #classes do
    local taken = pop(classes[(now + i) % #classes + 1], node, runner, token, ttl)
    if taken then return taken end
  end
  redis.call('HDEL', P .. 'work:' .. node, runner)
  return false
end

-- The reply may have been lost: the token that the runner was given stays in work:<node> until it is over.
-- known: it may have been asked for before.
local function again_or_take(node, runner, token, ttl, known)
  local mine = not known or redis.call('HGET', P .. 'work:' .. node, runner)
  local id = known and mine and string.sub(mine, 1, #token) == token and string.match(mine, '^%S+ %S+ (.*)$')
  if id then
    -- include handed
    return handed(id)
  end
  local job = take(node, runner, token, ttl)
  if not mine or not job then
    -- include ring
    rescore(node)
  end
  return job
end
