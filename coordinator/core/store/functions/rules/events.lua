-- Events: things outside that jobs wait for. event:<name> = the event, once somebody has set it: value (JSON), by, at.
-- A job may wait for one in the middle, without a worker: it is parked, and its record has `event`, the name, and for
-- the steps that follow `then` and `else`: "<limit>\n<task>\n<class, a line or more>\0<JSON of the steps>". Then comes
-- with the event, else with the end of the time; without it, the job fails then. timeouts = parked jobs, by that end.
local events = {}

function events.value(c, name) return redis.call('HGET', c.P .. 'event:' .. name, 'value') end

-- Lets the job go on with other steps.
local function go_on(c, id, job, way)
  local limit, task, class, steps = string.match(way, '^(%d+)\n([^\n]*)\n([^%z]*)%z(.*)$')
  return settle.conclude(c, id, job, {kind = 'replaced', detail = steps, class = class, task = task, limit = limit})
end

local function unpark(c, id, job)
  local ways = redis.call('HMGET', job.name, 'then', 'else')
  states.leave(c, id, job)
  history.note(c, job, 'woken')
  return ways
end

-- The event has been set: a job that is parked for it goes on.
function events.wake(c, id, job, name)
  if not name or job.event ~= name then return end
  local way = unpark(c, id, job)[1]
  redis.call('HSET', job.name, 'value', events.value(c, name))
  go_on(c, id, job, way)
end

-- The time is over for which a job was to wait.
function events.time_out(c, id, job)
  if job.state ~= 'parked' or not job.event then return end
  local way = unpark(c, id, job)[2]
  if way ~= '' then return go_on(c, id, job, way) end
  local message = string.format('event %s was not set in time', job.event)
  local error = cjson.encode({type = 'EventTimeout', module = 'coordinator.errors', message = message})
  settle.conclude(c, id, job, {kind = 'failed', detail = error})
end

return events
