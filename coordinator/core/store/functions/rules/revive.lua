-- Reviving: a job that ended badly stands in its lines again, with its record.
local revive = {}

-- Gives the job all its attempts and losses again. A job that was rolled back begins again with its first step.
function revive.anew(c, id, job, act)
  local name = job.name
  local was = record.texts(name, {'rollback', 'home', 'spec'})
  if was[1] == 'done' and was[2] then
    local limit, task, class = string.match(was[2], '^(%d+)\n([^\n]*)\n(.*)$')
    local first = cjson.decode(was[3]).first or 0
    job.limits = record.with_time(job.limits, limit)
    redis.call('HSET', name, 'step', first, 'limits', job.limits, 'task', task, 'class', class)
    redis.call('HDEL', name, 'value', 'values', 'instead')
    job.task, job.class = task, class
  end
  history.note(c, job, 'retried', act)
  record.note(c, id, 'forgiven', job.attempt or 0, 'losses', 0, 'phase', '', 'retried', act)
  redis.call('HDEL', name, 'stop', 'ends', 'rollback', 'fault', 'conflicts')
end

-- Grabs the instance again for a job that ended badly. False: another works on it or has completed it.
local function regrab(c, id, job)
  local grab = held.grab(c, job.keys)
  if grab.state == 'running' or grab.state == 'complete' then return false end
  grabs.begin_job(c, job.keys, grab, job.grab, id)
  return true
end

-- Puts a job that ended badly into its lines again, and keeps its record. False: another has its instance.
function revive.job(c, id, job, to, act)
  if job.grab and not regrab(c, id, job) then return false end
  local name = job.name
  retention.undo(c, id, job)
  if job.tell then redis.call('ZREM', c.P .. 'unsent:' .. record.app_of(c, job), id) end
  history.count(c, job.state, job.task, '-1')
  history.tally(c, 'revived\n' .. job.state .. '\n' .. job.task)
  local error, ended = unpack(redis.call('HMGET', name, 'error', 'ended'))
  history.note(c, job, job.state, error, nil, ended)
  revive.anew(c, id, job, act)
  redis.call('HDEL', name, 'readied', 'taken', 'ended', 'token', 'last', 'condemned', 'expires', 'score', 'offers',
    'once_sent', 'lacked', 'apart')
  if job.tick then ticks.revived(c, id, job.tick) end
  local score = line.new_score(c, redis.call('HGET', name, 'priority') or 0, to)
  causes.revived(c, id)
  admit.join(c, id, record.keys_of(job.keys), score)
  return true
end

return revive
