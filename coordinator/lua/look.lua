-- Shared: a parked job waits for one that is over: its app's wardens look at once.
-- include record

local function look_at(parent)
  local job = read(parent)
  if job and job.state == 'parked' then redis.call('ZADD', P .. 'parked:' .. app_of(job), 0, parent) end
end
