-- Shared: lines. line:<key> is a sorted set of job ids; a job has one score in all its lines.
-- include fence
-- include marks

-- Whoever was started stays in front of all its lines: from then nobody overtakes it.
local function pin(id, keys)
  local score = redis.call('ZSCORE', P .. 'line:' .. keys[1], id)
  if score ~= '-inf' then redis.call('HSET', P .. 'job:' .. id, 'score', score) end
  for _, key in ipairs(keys) do redis.call('ZADD', P .. 'line:' .. key, '-inf', id) end
end
