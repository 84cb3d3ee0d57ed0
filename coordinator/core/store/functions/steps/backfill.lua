-- Backfills: operators have past instants of an entry run, and beats put these in line, a few at a time.

local SHOWN = 10 -- instants of which the jobs failed that a reading names

-- Sorts instants, the end of an id and ms in turns, by what is known of them. add?: called with each that may run, and
-- with each of which only now something is known. Returns how many may run of which nothing was known, how many have
-- each state, and how many the beats have.
local function sorted(c, name, tick, args, from, add)
  local numbers, past = {beats = 0}, backfills.past(c, name)
  local new = 0
  for _, state in ipairs(backfills.STATES) do numbers[state] = 0 end
  for i = from, #args, 2 do
    local state, noted = backfills.look(c, tick, name, past, args[i], args[i + 1])
    if not state then
      new, state = new + 1, 'to_come'
    end
    if not noted and state ~= 'beats' and add then add(args[i], args[i + 1], state) end
    numbers[state] = numbers[state] + 1
  end
  local found = {new}
  for _, state in ipairs(backfills.STATES) do found[#found + 1] = numbers[state] end
  found[#found + 1] = numbers.beats
  return found
end

-- Writes what a call says of a backfill. Returns true if that was otherwise.
local function write(c, name, at_once, reverse, since, till)
  local backfill = c.P .. 'backfill:' .. name
  local given = {at_once, reverse, since, till}
  local before = redis.call('HMGET', backfill, 'at_once', 'reverse', 'from', 'to')
  local other = redis.call('HDEL', backfill, 'stopped', 'error') > 0
  for i = 1, #given do other = other or before[i] ~= given[i] end
  if other then
    redis.call('HSET', backfill, 'at_once', at_once, 'reverse', reverse, 'from', since, 'to', till)
  end
  return other
end

step.define('entry_backfill', {}, function(c, name, at_once, reverse, since, till, act, args, from)
  local tick = ticks.read(c, name)
  if not tick then return {-1} end
  local changed = write(c, name, at_once, reverse and '1' or '', since, till)
  local found = sorted(c, name, tick, args, from, function(ending, instant, state)
    backfills.add(c, name, ending, instant, state)
  end)
  if changed or found[1] > 0 then
    act = audit.act(c, act)
    redis.call('HSET', c.P .. 'backfill:' .. name, 'by', audit.kept(act))
    if redis.call('EXISTS', c.P .. 'acted:' .. act.id) == 0 then
      ticks.note_act(c, name, act, 'backfill', 'backfill ' .. act.after, act.before, act.after)
    end
  end
  backfills.keep(c, name)
  backfills.look_after(c, name)
  return {1, unpack(found)}
end)

step.define('entry_backfill_plan', {'no-writes'}, function(c, name, args, from)
  local tick = ticks.read(c, name)
  return tick and {1, unpack(sorted(c, name, tick, args, from))} or {-1}
end)

-- Takes jobs of a backfill that did not start out of line: their instants are to come again.
local function withdraw(c, name, act)
  local there = backfills.first(c, name, 'in_line', 1000, true)
  for i = 1, #there, 2 do
    local id = name .. '@' .. there[i]
    local tick, taken = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'tick', 'taken'))
    if backfills.is_own(name, tick) and not taken and cancel.job(c, id, act, true) == 'cancelled' then
      backfills.set(c, name, there[i], 'to_come')
    end
  end
end

step.define('entry_backfill_stop', {'allow-oom'}, function(c, name, act)
  if not ticks.read(c, name) then return -1 end
  local backfill = c.P .. 'backfill:' .. name
  if redis.call('HEXISTS', c.P .. 'backfills', name) == 0 then return 0 end
  act = audit.act(c, act)
  redis.call('HSET', backfill, 'stopped', audit.kept(act))
  redis.call('HDEL', c.P .. 'backfills', name)
  withdraw(c, name, act)
  ticks.note_act(c, name, act, 'stop', 'backfill stopped', 'open', 'stopped')
  return 1
end)

step.define('backfills_read', {'no-writes'}, function(c, args, from)
  local found = {}
  for i = from, #args do
    local name = args[i]
    local asked = redis.call('HMGET', c.P .. 'backfill:' .. name, 'at_once', 'reverse', 'from', 'to', 'by', 'stopped',
      'error')
    local since, till = tonumber(asked[3]), tonumber(asked[4])
    if since and till then
      local numbers, failed = {}, {}
      for _, state in ipairs(backfills.STATES) do
        numbers[#numbers + 1] = backfills.count(c, name, state, since, till)
      end
      for _, state in ipairs({'failed', 'double_fault'}) do
        local there = backfills.first(c, name, state, SHOWN, true)
        for j = 1, #there, 2 do failed[#failed + 1] = there[j] end
      end
      found[#found + 1] = {asked, numbers, failed}
    else
      found[#found + 1] = false
    end
  end
  return found
end)

step.define('backfill_look', {'allow-oom'}, function(c, name, room)
  if redis.call('HEXISTS', c.P .. 'backfills', name) == 0 then return {} end
  backfills.mend(c, name)
  backfills.look_after(c, name)
  local free = room - backfills.count(c, name, 'in_line')
  if free <= 0 then return {} end
  local newest = redis.call('HGET', c.P .. 'backfill:' .. name, 'reverse') == '1'
  return backfills.first(c, name, 'to_come', free, newest)
end)

-- Puts the job of an instant in line, or in line again where a stop took it out. Returns the outcome, and for a job
-- that is refused, what refuses it.
local function put_in_line(c, name, args, from)
  local id = args[from]
  local job = record.read(c, id)
  if job and job.state == 'cancelled' and backfills.is_own(name, job.tick) then
    revive.job(c, id, job, 'back', redis.call('HGET', c.P .. 'backfill:' .. name, 'by') or '{}')
    return 'queued', ''
  end
  local outcome, place, other = unpack(submit.asked(c, args, from))
  if outcome == 'undeclared' or outcome == 'too_many' then return 'refused', other .. '\n' .. place end
  return outcome, ''
end

step.define('backfill_take', {}, function(c, name, hash, ending, room, args, from)
  local tick = ticks.read(c, name)
  if not tick or tick.hash ~= hash then return {'stale', ''} end
  if redis.call('HEXISTS', c.P .. 'backfills', name) == 0 then return {'over', ''} end
  if backfills.state(c, name, ending) ~= 'to_come' then return {'over', ''} end
  if backfills.count(c, name, 'in_line') >= tonumber(room) then return {'full', ''} end
  local outcome, why = put_in_line(c, name, args, from)
  if outcome ~= 'refused' then
    backfills.set(c, name, ending, backfills.by_record(c, name .. '@' .. ending) or 'succeeded')
  end
  return {outcome, why}
end)

step.define('backfill_fail', {'allow-oom'}, function(c, name, hash, why)
  local tick = ticks.read(c, name)
  if not tick or tick.hash ~= hash or redis.call('HDEL', c.P .. 'backfills', name) == 0 then return 0 end
  redis.call('HSET', c.P .. 'backfill:' .. name, 'error', why)
  return 1
end)
