-- Shared: how a job that stood apart comes into its lines.
-- include enter
-- include lane

local function join(id, keys, score)
  redis.call('HSET', P .. 'job:' .. id, 'state', 'waiting')
  enter(id, keys, score)
  admit(keys[1])
end
