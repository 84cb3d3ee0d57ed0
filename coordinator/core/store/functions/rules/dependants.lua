-- Dependants: a job may wait until other jobs have ended and events are set, its causes (rules/causes.lua). It is
-- `blocked`, and stands in no line. The field `after` of its record has the policy for causes that end badly (fail, run
-- or hold), and a line "<argument> <cause>" for each; argument: by which the job gets the result of the cause, '' = it
-- does not. The field `given` has these results, as text of a JSON object without its braces.
local dependants = {}

local MOST = 100 -- dependants that one step tells, and causes at which one sweep looks
local GOOD = {succeeded = true, set = true}
local ENDS = {failed = 'failed', cancelled = 'was cancelled', expired = 'expired',
  rolled_back = 'failed and was rolled back', double_fault = 'failed, as did its rollback',
  gone = 'is gone: Redis keeps no record of how it ended'}

-- The policy in the text of `after`, and its lines.
local function parsed(text)
  local policy, lines = string.match(text, '^(%a+)\n(.*)$')
  local all = {}
  for argument, cause in string.gmatch(lines, '([^ \n]*) ([^\n]+)') do
    all[#all + 1] = {argument = argument, cause = cause}
  end
  return policy, all
end

-- Reads a cause: its id, without aliases, and how it ended; nil: it has not. No id: nobody knows such a job.
local function look_at(c, cause)
  local event = causes.event_of(cause)
  if event then return cause, redis.call('EXISTS', c.P .. 'event:' .. event) == 1 and 'set' or nil end
  local state, class, past, alias, skipped =
    unpack(redis.call('HMGET', c.P .. 'job:' .. cause, 'state', 'class', 'past', 'alias', 'skipped'))
  local other = alias or skipped
  if other then return look_at(c, other) end
  if not state or not class and not past then return nil end -- a lock in plain code has neither
  return cause, states.TERMINAL[state] and state or nil
end

-- Looks at the causes of a submit, and writes their ids without aliases into the list of its fields. Returns its lines
-- with the outcomes; or nil and a cause that nobody knows. Where the field `unknown` says so, that counts as gone.
function dependants.look(c, fields, list, from)
  local policy, all = parsed(fields.after)
  local lines = {policy}
  for _, one in ipairs(all) do
    local id, outcome = look_at(c, one.cause)
    if not id and fields.unknown ~= 'gone' then return nil, one.cause end
    if not id then id, outcome = one.cause, 'gone' end
    one.cause, one.outcome = id, outcome
    lines[#lines + 1] = one.argument .. ' ' .. id
  end
  for i = from, #list, 2 do
    if list[i] == 'after' then list[i + 1] = table.concat(lines, '\n') end
  end
  return all
end

-- The result of an ended cause, as JSON.
local function result_of(c, cause, outcome)
  local event = causes.event_of(cause)
  if event then return redis.call('HGET', c.P .. 'event:' .. event, 'value') or 'null' end
  if outcome ~= 'succeeded' then return 'null' end
  local name = c.P .. 'job:' .. cause
  return record.whole(name, 'result', redis.call('HGET', name, 'result')) or 'null'
end

-- Hands the results of ended causes on to a job.
local function hand_on(c, name, ended)
  local parts = {redis.call('HGET', name, 'given') or nil}
  for _, one in ipairs(ended) do
    if one.argument ~= '' then
      parts[#parts + 1] = cjson.encode(one.argument) .. ':' .. result_of(c, one.cause, one.outcome)
    end
  end
  if parts[1] then redis.call('HSET', name, 'given', table.concat(parts, ',')) end
end

local function error_of(cause, outcome)
  local message = string.format('it was to run after job %s, which %s', cause, ENDS[outcome])
  return cjson.encode({type = 'CauseFailed', module = 'coordinator.errors', message = message})
end

-- Holds a job until an operator decides, or the cause succeeds after all.
local function hold(c, id, job, cause, outcome)
  redis.call('ZADD', c.P .. 'held-after:' .. cause, '0', id)
  if job.state ~= 'blocked' then return end
  local detail = error_of(cause, outcome)
  redis.call('SREM', c.P .. 'state:blocked', id)
  history.note(c, job, 'held', detail)
  history.trouble(c, id, job, 'held')
  redis.call('PUBLISH', c.P .. 'done:' .. id, 'held')
  job.state = states.enter(c, id, 'held', 'ends', 'failed', 'error', detail)
end

-- Lets a job into its lines, or has it wait for its own time.
local function let_go_on(c, id, job)
  local score, start = unpack(redis.call('HMGET', job.name, 'score', 'not_before'))
  redis.call('SREM', c.P .. 'state:' .. job.state, id)
  if start and not base.is_past(c, start) then return states.schedule(c, id, score, start) end
  admit.join(c, id, record.keys_of(job.keys), score, 'waited', string.format('after %d', c.now - job.submitted))
end

-- Has a new job, whose record is written, wait for its causes: lines as `look` returns them. start: before which it may
-- not begin, or false. Returns true where it is blocked or held, or has failed already.
function dependants.begin(c, id, all, score, start)
  local job, open, ended, bad = record.read(c, id), {}, {}, nil
  local policy = parsed(job.after)
  for _, one in ipairs(all) do
    local failed = one.outcome and not GOOD[one.outcome] and policy ~= 'run'
    if failed then bad = bad or one end
    table.insert(one.outcome and not failed and ended or open, one)
  end
  hand_on(c, job.name, ended)
  if not open[1] then return false end
  redis.call('HSET', job.name, 'score', score)
  if start then redis.call('HSET', job.name, 'not_before', start) end
  job.state = states.enter(c, id, 'blocked')
  if bad and policy == 'fail' then
    settle.finish(c, id, job, 'failed', 'error', error_of(bad.cause, bad.outcome))
    return true
  end
  for _, one in ipairs(open) do
    redis.call('SADD', c.P .. 'causes:' .. id, one.cause)
    if one.outcome then
      hold(c, id, job, one.cause, one.outcome)
    else
      causes.wait_for(c, id, one.cause, score)
    end
  end
  return true
end

-- Tells a job that one of its causes has ended.
local function tell(c, id, cause, outcome)
  local job, open = record.read(c, id), c.P .. 'causes:' .. id
  if not job then return redis.call('DEL', open) end
  if job.state == 'parked' then return events.wake(c, id, job, causes.event_of(cause)) end
  if redis.call('SISMEMBER', open, cause) == 0 then return end
  local policy, all = parsed(job.after)
  if not GOOD[outcome] and policy == 'hold' then return hold(c, id, job, cause, outcome) end
  if not GOOD[outcome] and policy == 'fail' then
    return settle.finish(c, id, job, 'failed', 'error', error_of(cause, outcome))
  end
  redis.call('SREM', open, cause)
  causes.forget(c, id, cause)
  local ended = {}
  for _, one in ipairs(all) do
    one.outcome = outcome
    if one.cause == cause then ended[#ended + 1] = one end
  end
  hand_on(c, job.name, ended)
  if redis.call('EXISTS', open) == 0 then let_go_on(c, id, job) end
end

-- Tells dependants of ended causes, in the order of these, as many as one step may. One that fails by that is a cause
-- itself: so a failure goes down the graph without recursion. Returns true if some are left.
function dependants.go_on(c)
  local tell_after = c.tell_after
  c.ended, c.tell_after = false, 0 -- no runner sends the results of those that end here
  while c.told < MOST do
    local outcome, cause = string.match(redis.call('LINDEX', c.P .. 'ended-causes', '0') or '', '^(%S+)\n(.*)$')
    if not cause then break end
    local id = redis.call('ZPOPMIN', c.P .. 'dependants:' .. cause)[1]
    if id then
      c.told = c.told + 1
      ready.write_fresh(c) -- who enters a line looks whether the one in front is ready
      base.guarded(id, function() tell(c, id, cause, outcome) end)
    else
      redis.call('LPOP', c.P .. 'ended-causes')
    end
  end
  c.tell_after = tell_after
  return redis.call('EXISTS', c.P .. 'ended-causes') == 1
end

-- True for a job that never began, since it waits for its causes or one of them holds it.
function dependants.holds(job)
  return job.after and not job.taken and (job.state == 'blocked' or job.state == 'held')
end

-- Lets a job that a cause holds go on without its causes.
function dependants.release(c, id, job)
  causes.leave(c, id)
  let_go_on(c, id, job)
end

-- Looks at the causes of some blocked jobs, so that none waits for one that is over or whose record is gone. cursor: of
-- the last call. Returns that of the next.
function dependants.audit(c, cursor)
  local reply, left = redis.call('SSCAN', c.P .. 'state:blocked', cursor, 'COUNT', '20'), MOST
  for _, id in ipairs(reply[2]) do
    for _, cause in ipairs(left > 0 and redis.call('SMEMBERS', c.P .. 'causes:' .. id) or {}) do
      local known, outcome = look_at(c, cause)
      left = left - 1
      if outcome or not known then base.guarded(id, function() tell(c, id, cause, outcome or 'gone') end) end
    end
  end
  return reply[1]
end

return dependants
