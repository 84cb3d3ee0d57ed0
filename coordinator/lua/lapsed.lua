-- Shared: a lock in plain code that was not renewed ends when somebody else wants it. Its holder knows: it distrusts a
-- lease that nobody confirmed for its whole ttl. Jobs are left to the sweep, which grants a grace after a silence.
-- include lose

local function end_lapsed(key)
  local id = holder_of(key)
  local till = id and redis.call('ZSCORE', P .. 'locks', id)
  if not till or tonumber(till) >= now then return end
  local job = read(id)
  if job and not job.class and job.state == 'running' then lose(id, job, 'lost', '"its lease ended"') end
end
