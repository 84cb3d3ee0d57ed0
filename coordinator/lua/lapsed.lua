-- Shared: a lock in plain code that was not renewed ends when somebody else wants it. Its holder knows: it distrusts a
-- lease that nobody confirmed for its whole ttl. Jobs are left to the sweep, which grants a grace after a silence.
-- include lose
-- include standing

local function end_lapsed(key)
  local marks = marks_of(key)
  local last = marks == 0 and 0 or marks + limit_of(key) - 1
  for _, id in ipairs(redis.call('ZRANGE', P .. 'line:' .. key, marks, last)) do
    local till = redis.call('ZSCORE', P .. 'locks', id)
    local job = till and tonumber(till) < now and read(id)
    if job and not job.class and job.state == 'running' then lose(id, job, 'lost', '"its lease ended"') end
  end
end
