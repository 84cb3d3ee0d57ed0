-- Ticks: the entries of schedules. tick:<name> = a periodic entry: what beats agree on, and how operators steer it;
-- ticks:<name> = the history of its last ticks, a line each:
--   <instant> <ms late> <word> <missed> <beat> a tick. word: the outcome of its submit, `sent`, `failed`, `omitted`
--                                              or `missed`; missed: how many instants nobody sends; beat: of one that
--                                              failed with the byte 31 and its error, percent-encoded
--   !<token> <wall> <word> <beat> {by, why}    a run that somebody asked for
--   =<tick> <state> <wall>                     how a job ended; tick: its instant or !<token>
--   ~{at, act, by, why}                        an operator's act
local ticks = {}

ticks.ACTS = {'paused', 'omit', 'omitted', 'other', 'changed'}
local FIELDS = {'source', 'hash', 'last', 'unsent', 'token', 'till', 'paused', 'omit', 'other'}

-- Reads an entry; nil: no beat knows one of this name.
function ticks.read(c, name)
  local tick = {name = c.P .. 'tick:' .. name}
  for i, value in ipairs(redis.call('HMGET', tick.name, unpack(FIELDS))) do tick[FIELDS[i]] = value or nil end
  for _, field in ipairs({'last', 'till', 'omit'}) do
    if tick[field] and not tonumber(tick[field]) then tick[field] = '0' end -- it is damaged
  end
  return tick.source and tick
end

-- Appends a line to the history. most: number of ticks to keep, each with its end.
function ticks.log(c, name, most, ...)
  local log = c.P .. 'ticks:' .. name
  redis.call('RPUSH', log, table.concat({...}, ' '))
  redis.call('LTRIM', log, -2 * most, -1)
end

-- Logs a tick that was sent or passed over.
function ticks.note(c, name, instant, word, missed, due, beat, most)
  ticks.log(c, name, most, instant, base.text_of(math.max(0, c.wall - due)), word, missed, beat)
end

-- Logs how a tick's job ended. tick: the entry's name, and the instant or !<token>; +<instant>: of a backfill, whose
-- instants would drive the others out of the log. The log of an entry that is gone is not created again.
function ticks.ended(c, id, tick, state)
  local name, which = string.match(tick, '^(.*)\n(.*)$')
  backfills.note(c, name, id, state)
  if string.sub(which, 1, 1) == '+' then return end
  redis.call('RPUSHX', c.P .. 'ticks:' .. name, '=' .. which .. ' ' .. state .. ' ' .. base.text_of(c.wall))
end

-- The job of a tick that ended badly stands in line again.
function ticks.revived(c, id, tick)
  backfills.note(c, string.match(tick, '^(.*)\n'), id, 'in_line')
end

-- Writes an operator's act on an entry into both histories, and adds the name to the set of steered entries, or removes
-- it. what: the words of the entry's own history.
function ticks.note_act(c, name, act, verb, what, before, after)
  local tick = c.P .. 'tick:' .. name
  local steered = redis.call('HMGET', tick, unpack(ticks.ACTS))
  local any = false
  for i = 1, #ticks.ACTS do any = any or steered[i] end
  redis.call(any and 'SADD' or 'SREM', c.P .. 'steered', name)
  ticks.log(c, name, 100, '~' .. cjson.encode({at = c.wall, act = what, by = act.by, why = act.why}))
  audit.note(c, act, verb, 'entry', name, before, after)
end

-- Notes that a beat must send the instant within the lease.
function ticks.hold(c, tick, name, instant, token, lease)
  local till = base.text_of(c.now + lease)
  redis.call('HSET', tick.name, 'unsent', instant, 'token', token, 'till', till)
  redis.call('ZADD', c.P .. 'schedule-unsent', till, name)
end

function ticks.strike_out(c, tick, name)
  if not tick.unsent then return end
  redis.call('HDEL', tick.name, 'unsent', 'token', 'till')
  redis.call('ZREM', c.P .. 'schedule-unsent', name)
end

-- Forgets an entry that no source has any more. Operators' acts on it stay, in case it comes back.
function ticks.forget(c, name)
  redis.call('HDEL', c.P .. 'tick:' .. name, 'source', 'hash', 'last', 'next', 'about', 'unsent', 'token', 'till')
  redis.call('ZREM', c.P .. 'schedule-unsent', name)
  redis.call('DEL', c.P .. 'ticks:' .. name, c.P .. 'runs:' .. name)
  if redis.call('EXISTS', c.P .. 'tick:' .. name) == 0 then redis.call('SREM', c.P .. 'steered', name) end
end

-- Stores an entry of a source. A new or changed one counts from then, and no instant comes twice. Returns its last
-- instant.
function ticks.follow(c, source, from, name, hash, next, about)
  local tick = c.P .. 'tick:' .. name
  local known, last, shown = unpack(redis.call('HMGET', tick, 'hash', 'last', 'about'))
  if known ~= hash or not tonumber(last) then
    last = base.text_of(math.min(math.max(tonumber(last) or 0, tonumber(from)), c.wall))
    redis.call('HSET', tick, 'hash', hash, 'last', last, 'next', next)
  end
  if known ~= hash or not shown then redis.call('HSET', tick, 'about', about) end
  redis.call('HSET', tick, 'source', source)
  redis.call('SADD', c.P .. 'schedule-entries:' .. source, name)
  return last
end

return ticks
