-- Shared: a job that is not to start yet. due = what is to be looked at, by its instant.
-- include apart

local function start_later(id, score, instant)
  redis.call('HSET', P .. 'job:' .. id, 'score', score)
  redis.call('ZADD', P .. 'due', instant, id)
  return into(id, 'scheduled')
end
