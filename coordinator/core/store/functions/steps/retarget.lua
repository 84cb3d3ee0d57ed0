-- Retargeting: operators give jobs another task.

local SEEN = {'state', 'phase', 'step', 'task', 'class', 'undo', 'home', 'was', 'spec'}

-- Moves a ready job to the list of its new class, where the next claim looks for it.
local function line_up(c, id, job)
  if job.taken then return settle.put_back(c, id, job) end
  if quotas.hold_back(c, id, job) then return redis.call('HSET', job.name, 'state', 'waiting') end
  job.priority = redis.call('HGET', job.name, 'priority')
  ready.put(c, id, job)
  base.add(c, 'readied', job)
end

step.define('job_retarget', {'allow-oom'}, function(c, id, seen, act, args, from)
  local job = record.read(c, id)
  local now = record.texts(c.P .. 'job:' .. id, SEEN)
  for i = 1, #now do now[i] = now[i] or '' end
  if not job or table.concat(now, '\0') ~= seen then return 0 end
  local fields = submit.by_name(c, args, from)
  local stands = job.state == 'ready'
  local moves = stands and (job.uses or fields.class and fields.class ~= job.class) -- else it keeps its turn
  act = audit.act(c, act)
  history.note(c, job, 'retargeted', audit.kept(act))
  if moves then ready.drop(c, id, job) elseif stands then ready.count_out(c, id, job.task, job.class) end
  record.note(c, id, 'retargeted', audit.kept(act), unpack(args, from))
  job.light = nil
  audit.note(c, act, 'retarget', 'job', id, job.task, fields.task or job.task)
  local task, class = fields.task or job.task, fields.class or job.class
  if job.lack then quotas.retarget(c, id, job, task, class) end
  job.task, job.class = task, class
  if moves then line_up(c, id, job) elseif stands then ready.count_in(c, id, job) end
  return 1
end)
