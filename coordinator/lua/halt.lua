-- Shared: marks that an operator puts in front of a line, or takes away.
-- include apart
-- include drop
-- include join
-- include standing

-- In a line with a mark all that were started are pinned: the one that was is pinned now.
local function mark(key, which)
  local line = P .. 'line:' .. key
  local head = redis.call('ZRANGE', line, 0, 0)[1]
  local job = head and not is_mark(head) and redis.call('HMGET', P .. 'job:' .. head, 'state', 'keys')
  if job and job[1] ~= 'waiting' then pin(head, keys_of(job[2])) end
  redis.call('ZADD', line, '-inf', which)
  redis.call('ZADD', P .. 'lanes', 0, key)
end

-- Ready, but it may not start after all: back to its place; whoever stood behind it elsewhere may be first now.
local function unready(id, job)
  drop(id, job)
  redis.call('HSET', P .. 'job:' .. id, 'state', 'waiting')
  local keys, score = keys_of(job.keys), redis.call('HGET', P .. 'job:' .. id, 'score')
  if not score then return end
  redis.call('HDEL', P .. 'job:' .. id, 'score')
  for _, key in ipairs(keys) do redis.call('ZADD', P .. 'line:' .. key, 'XX', score, id) end
  for _, key in ipairs(keys) do admit(key) end
end

-- Those that are ready and were never taken go back to their places.
local function call_back(key)
  local line = P .. 'line:' .. key
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', line, '-inf', '-inf')) do
    local job = not is_mark(id) and read(id)
    if job and job.state == 'ready' and not job.taken then unready(id, job) end
  end
end
