-- Shared: from here nothing melts into a job any more: it starts, or it is over.
-- include base

local function unmelt(id, job, keys)
  redis.call('DEL', P .. 'melt:' .. job.melt .. ':' .. keys[1])
  redis.call('HDEL', P .. 'job:' .. id, 'melt')
end
