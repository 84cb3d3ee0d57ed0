-- Shared: what is ready, otherwise than taken.
-- include ready

-- It is not to be taken any more.
local function drop(id, job)
  local group = group_of(job)
  local list = group_list(job.class, group)
  redis.call('LREM', list, 1, id)
  if redis.call('EXISTS', list) == 0 then redis.call('LREM', P .. 'ready:' .. job.class, 1, group) end
end

-- How many, as far as the first `most` groups go.
local function count_ready(class, most)
  local count = 0
  for _, group in ipairs(redis.call('LRANGE', P .. 'ready:' .. class, 0, most)) do
    count = count + redis.call('LLEN', group_list(class, group))
  end
  return count
end
