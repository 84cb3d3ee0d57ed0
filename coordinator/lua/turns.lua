-- Shared: the groups of a class come in turns.
-- include ready

-- The next one's id, and its group, which goes behind the others; the record as far as it was read.
local function shift(class)
  local ready, job = P .. 'ready:' .. class, fresh
  if job and job.class == class and redis.call('EXISTS', ready) == 0 then
    fresh, job.state = nil, 'ready'
    return job.id, group_of(job), job
  end
  settle()
  local group = redis.call('LMOVE', ready, ready, 'LEFT', 'RIGHT')
  if not group then return end
  local list = group_list(class, group)
  local id = redis.call('LPOP', list)
  if redis.call('EXISTS', list) == 0 then redis.call('RPOP', ready) end
  return id, group
end
