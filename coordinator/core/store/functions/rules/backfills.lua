-- Backfills: past instants of an entry that somebody wants to run. Their jobs have the ids of ticks, <entry>@<end>, so
-- that each instant runs once. Beats put a few in line at a time, and follow with the next ones.
--   backfills           hash: entry -> at_once, of those that beats look after: instants are to come or in line
--   backfill:<entry>    hash, of the last call: at_once; reverse, 1 = the newest first; from, to (ms); by, the act;
--                       stopped, the act; error, why a beat could not make the jobs
--   backfilled:<entry>  sorted set: the end of an instant's id -> its state, and the instant: so each state is a range
local backfills = {}

backfills.STATES = {'to_come', 'in_line', 'succeeded', 'failed', 'cancelled', 'expired', 'rolled_back', 'double_fault'}
local SPAN, HALF = 35184372088832, 17592186044416 -- ms: each state has 1,100 years, with 1970 in the middle
local KEPT = 31536000000 -- ms for which instants are remembered after the last call
local MOST, DROPPED = 20000, 1000 -- instants that are remembered of an entry; of those that one call drops
local MENDED = 100 -- instants in line at which one look looks
local NUMBER = {to_come = 0, in_line = 1, succeeded = 2, failed = 3, cancelled = 4, expired = 5, rolled_back = 6,
  double_fault = 7}

local function place(state, instant) return base.text_of(NUMBER[state] * SPAN + HALF + instant) end

local function known(c, name) return c.P .. 'backfilled:' .. name end

-- The range of a state. from?, till?: of these instants alone.
local function range(state, from, till)
  return place(state, from or -HALF), '(' .. place(state, till or HALF)
end

-- How many instants are in a state. from?, till?: as above.
function backfills.count(c, name, state, from, till)
  return redis.call('ZCOUNT', known(c, name), range(state, from, till))
end

-- The first instants of a state, the end of the id and the instant in turns. newest?: the last ones.
function backfills.first(c, name, state, most, newest)
  local from, till = range(state)
  local found
  if newest then
    found = redis.call('ZREVRANGEBYSCORE', known(c, name), till, from, 'WITHSCORES', 'LIMIT', '0', base.text_of(most))
  else
    found = redis.call('ZRANGEBYSCORE', known(c, name), from, till, 'WITHSCORES', 'LIMIT', '0', base.text_of(most))
  end
  for i = 2, #found, 2 do found[i] = base.text_of(found[i] - place(state, 0)) end
  return found
end

local function state_of(score) return score and backfills.STATES[math.floor(score / SPAN) + 1] end

-- nil: the set does not have the instant.
function backfills.state(c, name, ending) return state_of(redis.call('ZSCORE', known(c, name), ending)) end

-- Gives a known instant another state.
function backfills.set(c, name, ending, state)
  local score = redis.call('ZSCORE', known(c, name), ending)
  if not score then return end
  redis.call('ZADD', known(c, name), place(state, score % SPAN - HALF), ending)
end

-- Notes how the job of an instant ended, or that it stands in line again. A damaged set stops no job.
function backfills.note(c, name, id, state)
  base.guarded(id, function() backfills.set(c, name, string.sub(id, #name + 2), state) end)
end

-- The state of an instant by the record of its job; nil: it has none.
function backfills.by_record(c, id)
  local state, alias = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'state', 'alias'))
  if alias then return 'succeeded' end -- it is part of another job
  if not state then return nil end
  return NUMBER[state] and states.TERMINAL[state] and state or 'in_line'
end

-- The instants that ran by the history of the entry, whose records may be gone: of an ordinary task, only that it was
-- sent is known.
function backfills.past(c, name)
  local ran, done = {}, {sent = true, coalesced = true, lost = true}
  for _, text in ipairs(redis.call('LRANGE', c.P .. 'ticks:' .. name, 0, -1)) do
    local ended, state = string.match(text, '^=(%-?%d+) (%S+)')
    if ended and state == 'succeeded' then ran[ended] = true end
    local instant, word = string.match(text, '^(%-?%d+) %S+ (%S+)')
    if instant and done[word] then ran[instant] = true end
  end
  return ran
end

-- What is known of an instant: its state; `beats`: those send it, or pass it over; nil: it may run. Second value: the
-- set has it. tick: the entry; past: as above.
function backfills.look(c, tick, name, past, ending, instant)
  local state = backfills.state(c, name, ending)
  if state then return state, true end
  if tonumber(instant) > tonumber(tick.last) or instant == tick.unsent then return 'beats' end
  return backfills.by_record(c, name .. '@' .. ending) or past[instant] and 'succeeded'
end

-- Adds an instant.
function backfills.add(c, name, ending, instant, state)
  redis.call('ZADD', known(c, name), 'NX', place(state, instant), ending)
end

-- Keeps what is known for a year, and bounds it: instants that succeeded are forgotten first, the oldest first.
function backfills.keep(c, name)
  redis.call('PEXPIRE', known(c, name), base.text_of(KEPT))
  redis.call('PEXPIRE', c.P .. 'backfill:' .. name, base.text_of(KEPT))
  local more = math.min(redis.call('ZCARD', known(c, name)) - MOST, DROPPED)
  local old = more > 0 and backfills.first(c, name, 'succeeded', more) or {}
  for i = 1, #old, 2 do redis.call('ZREM', known(c, name), old[i]) end
end

-- Lets beats look after a backfill where they have something to do.
function backfills.look_after(c, name)
  local open = backfills.count(c, name, 'to_come') + backfills.count(c, name, 'in_line') > 0
  local at_once = open and redis.call('HGET', c.P .. 'backfill:' .. name, 'at_once')
  if at_once then
    redis.call('HSET', c.P .. 'backfills', name, at_once)
  else
    redis.call('HDEL', c.P .. 'backfills', name)
  end
end

-- Looks at the instants in line whose end nobody noted: a job whose record is gone is to come again.
function backfills.mend(c, name)
  local there = backfills.first(c, name, 'in_line', MENDED)
  for i = 1, #there, 2 do
    local state = backfills.by_record(c, name .. '@' .. there[i]) or 'to_come'
    if state ~= 'in_line' then backfills.set(c, name, there[i], state) end
  end
end

-- The field `tick` of a job that a backfill put in line begins so.
function backfills.mark(name) return name .. '\n+' end

function backfills.is_own(name, tick)
  local mark = backfills.mark(name)
  return tick and string.sub(tick, 1, #mark) == mark
end

-- Adds a tick that was skipped since a job of the entry's own backfill stood in its lane. before: that job.
function backfills.join(c, name, id, instant, before)
  if redis.call('HEXISTS', c.P .. 'backfills', name) == 0 then return end
  if not backfills.is_own(name, redis.call('HGET', c.P .. 'job:' .. before, 'tick')) then return end
  backfills.add(c, name, string.sub(id, #name + 2), instant, 'to_come')
  local till = tonumber(redis.call('HGET', c.P .. 'backfill:' .. name, 'to')) or 0
  redis.call('HSET', c.P .. 'backfill:' .. name, 'to', base.text_of(math.max(till, instant + 1)))
end

return backfills
