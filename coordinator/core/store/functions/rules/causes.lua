-- Causes: what a job waits for in no line, other jobs and events. A cause is the id of a job, or EVENT and the name of
-- an event. causes:<id> = what a job still waits for; dependants:<cause> = the jobs that wait for it, as in a line;
-- held-after:<cause> = the jobs that are held since it failed; ended-causes = causes whose dependants are not all told
-- yet, in order, as "<outcome>\n<cause>"; events = names of events that are set, by the ms at which they are forgotten,
-- and of those for which jobs wait, at 0.
local causes = {EVENT = '\1'}

-- The name of an event; nil: the cause is a job.
function causes.event_of(cause) return string.byte(cause) == 1 and string.sub(cause, 2) or nil end

-- Lists a job among those that wait for a cause. score: its place there, as in a line.
function causes.wait_for(c, id, cause, score)
  redis.call('ZADD', c.P .. 'dependants:' .. cause, score, id)
  local event = causes.event_of(cause)
  if not event then return record.note(c, cause, 'blocks', 1) end
  redis.call('ZADD', c.P .. 'events', '0', event)
end

-- Ends a job's wait for a cause. An event for which nobody waits, and which is not set, is listed no longer.
function causes.forget(c, id, cause)
  redis.call('ZREM', c.P .. 'dependants:' .. cause, id)
  local event = causes.event_of(cause)
  if not event then return redis.call('ZREM', c.P .. 'held-after:' .. cause, id) end
  if redis.call('EXISTS', c.P .. 'dependants:' .. cause, c.P .. 'event:' .. event) == 0 then
    redis.call('ZREM', c.P .. 'events', event)
  end
end

-- Ends all waits of a job.
function causes.leave(c, id)
  for _, cause in ipairs(redis.call('SMEMBERS', c.P .. 'causes:' .. id)) do causes.forget(c, id, cause) end
  redis.call('DEL', c.P .. 'causes:' .. id)
end

-- Notes that a cause has ended: this step tells some of its dependants, and the sweep the rest.
function causes.note_end(c, cause, outcome)
  if redis.call('EXISTS', c.P .. 'dependants:' .. cause) == 0 then return end
  redis.call('RPUSH', c.P .. 'ended-causes', outcome .. '\n' .. cause)
  c.ended = true
end

-- A job that has ended runs again: those that it holds wait for it again.
function causes.revived(c, cause)
  local held, dependants = c.P .. 'held-after:' .. cause, c.P .. 'dependants:' .. cause
  if redis.call('EXISTS', held) == 0 then return end
  redis.call('ZUNIONSTORE', dependants, 2, dependants, held)
  redis.call('DEL', held)
  record.note(c, cause, 'blocks', 1)
end

return causes
