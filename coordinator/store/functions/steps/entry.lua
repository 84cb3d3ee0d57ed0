-- Entries of the schedule: code stores and removes them; operators steer entries of any source.

local STORED = 'entries' -- the source of the entries that code stores
local CHANGES = 10000 -- number of changes to stored entries that are remembered
local RUNS = 1000 -- number of runs of an entry whose tokens are remembered

local function note_change(c, name)
  redis.call('RPUSH', c.P .. 'entries-log', name)
  redis.call('LTRIM', c.P .. 'entries-log', -CHANGES, -1)
  return redis.call('INCR', c.P .. 'entries-version')
end

-- entry_put: stores an entry, or replaces the one of its name. A new or changed entry counts from now.
-- args name text hash next about act
--   text: the entry for beats; hash, next, about: as in schedule_follow
-- returns {1} = stored, {0} = unchanged, {-1, source} = another source has that name; asked again: {0}
step.define('entry_put', {}, function(c, args)
  local name, text, hash, next, about, act = unpack(args)
  local tick = ticks.read(c, name)
  if tick and tick.source ~= STORED then return {-1, tick.source} end
  if tick and tick.hash == hash then return {0} end
  if tick then ticks.strike_out(c, tick, name) end
  redis.call('HSET', c.P .. 'entries', name, text)
  redis.call('SADD', c.P .. 'schedule-sources', STORED)
  ticks.follow(c, STORED, base.text_of(c.wall), name, hash, next, about)
  redis.call('HSET', c.P .. 'tick:' .. name, 'about', about)
  note_change(c, name)
  audit.note(c, audit.act(c, act), 'put', 'entry', name, tick and tick.hash or '', hash)
  return {1}
end)

-- entry_remove: removes a stored entry; from here on no beat sends it.
-- args name act
-- returns {1} = removed, {0} = there is none, {-1, source} = another source has that name; asked again: {0}
step.define('entry_remove', {'allow-oom'}, function(c, args)
  local name, act = unpack(args)
  local tick = ticks.read(c, name)
  if tick and tick.source ~= STORED then return {-1, tick.source} end
  if redis.call('HDEL', c.P .. 'entries', name) == 0 then return {0} end
  redis.call('SREM', c.P .. 'schedule-entries:' .. STORED, name)
  ticks.forget(c, name)
  note_change(c, name)
  audit.note(c, audit.act(c, act), 'remove', 'entry', name, tick and tick.hash or '', '')
  return {1}
end)

-- Reads a stored entry for a beat: its name, text ('' = it was removed) and last instant.
local function described(c, name, text)
  return {name, text or '', redis.call('HGET', c.P .. 'tick:' .. name, 'last') or '0'}
end

-- entries_read: reads the stored entries that changed since a version, or a page of all.
-- args since cursor
--   since: a version, '' = all, in pages; cursor: '0' at first
-- returns {version, cursor, {name, text, last}…}; cursor: '' = too many changes, read all; '0' = the last page;
--   asked again: the same
step.define('entries_read', {'no-writes'}, function(c, args)
  local since, cursor = unpack(args)
  local version = redis.call('GET', c.P .. 'entries-version') or '0'
  local listed = {version, '0'}
  if since == '' then
    local page = redis.call('HSCAN', c.P .. 'entries', cursor, 'COUNT', 500)
    listed[2] = page[1]
    for i = 1, #page[2], 2 do listed[#listed + 1] = described(c, page[2][i], page[2][i + 1]) end
    return listed
  end
  local behind = version - since
  if behind < 0 or behind > CHANGES then return {version, ''} end
  local seen = {}
  for _, name in ipairs(behind > 0 and redis.call('LRANGE', c.P .. 'entries-log', -behind, -1) or {}) do
    if not seen[name] then listed[#listed + 1] = described(c, name, redis.call('HGET', c.P .. 'entries', name)) end
    seen[name] = true
  end
  return listed
end)

-- Writes an operator's act on an entry into both histories, and adds the name to the set of steered entries, or removes
-- it. what: the words of the entry's own history.
local function note_act(c, name, act, verb, what, before, after)
  local tick = c.P .. 'tick:' .. name
  local steered = redis.call('HMGET', tick, unpack(ticks.ACTS))
  local any = false
  for i = 1, #ticks.ACTS do any = any or steered[i] end
  redis.call(any and 'SADD' or 'SREM', c.P .. 'steered', name)
  ticks.log(c, name, 100, '~' .. cjson.encode({at = c.wall, act = what, by = act.by, why = act.why}))
  audit.note(c, act, verb, 'entry', name, before, after)
end

-- Lets the entry count from now: no earlier instant is due.
local function count_from_now(c, tick, next)
  if tonumber(tick.last) < c.wall then redis.call('HSET', tick.name, 'last', base.text_of(c.wall)) end
  redis.call('HSET', tick.name, 'next', next)
end

-- entry_pause: stops sending the entry.
-- args name act
-- returns {new, ms}, new: 0 = it was paused already, -1 = no such entry; ms: for this long a beat may still send an
--   ordinary task that it took before; asked again: {0, ms}
step.define('entry_pause', {'allow-oom'}, function(c, args)
  local name, act = unpack(args)
  local tick = ticks.read(c, name)
  if not tick then return {-1, 0} end
  local left = tick.unsent and math.max(0, tick.till - c.now) or 0
  if tick.unsent and left == 0 then ticks.strike_out(c, tick, name) end
  if tick.paused then return {0, left} end
  act = audit.act(c, act)
  redis.call('HSET', tick.name, 'paused', audit.kept(act))
  note_act(c, name, act, 'pause', 'paused', 'open', 'paused')
  return {1, left}
end)

-- entry_resume: sends the entry again. Instants during the pause do not count as missed.
-- args name next act
--   next: the first instant after now
-- returns 1, 0 = it was not paused, -1 = no such entry; asked again: 0
step.define('entry_resume', {'allow-oom'}, function(c, args)
  local name, next, act = unpack(args)
  local tick = c.P .. 'tick:' .. name
  if redis.call('HDEL', tick, 'paused') == 0 then return redis.call('EXISTS', tick) - 1 end
  local entry = ticks.read(c, name)
  if entry then count_from_now(c, entry, next) end
  note_act(c, name, audit.act(c, act), 'resume', 'resumed', 'paused', 'open')
  return 1
end)

-- entry_omit: keeps a future instant from being sent.
-- args name instant act
-- returns 1, 0 = it was omitted already, -1 = no such entry, -2 = it was taken already; asked again: 0
step.define('entry_omit', {'allow-oom'}, function(c, args)
  local name, instant, act = unpack(args)
  local tick = ticks.read(c, name)
  if not tick then return -1 end
  if tick.omit == instant then return 0 end
  if tonumber(instant) <= tonumber(tick.last) then return -2 end
  act = audit.act(c, act)
  redis.call('HSET', tick.name, 'omit', instant, 'omitted', audit.kept(act))
  note_act(c, name, act, 'skip', 'omits ' .. instant, tick.omit or '', instant)
  return 1
end)

-- entry_change: gives the entry another schedule, or its own again. It counts from now.
-- args name other next act
--   other: '' = its own again; next: the first instant after now
-- returns 1, 0 = it has that schedule already, -1 = no such entry; asked again: 0
step.define('entry_change', {'allow-oom'}, function(c, args)
  local name, other, next, act = unpack(args)
  local tick = ticks.read(c, name)
  if not tick then return -1 end
  if (tick.other or '') == other then return 0 end
  act = audit.act(c, act)
  if other == '' then
    redis.call('HDEL', tick.name, 'other', 'changed')
  else
    redis.call('HSET', tick.name, 'other', other, 'changed', audit.kept(act))
  end
  redis.call('HDEL', tick.name, 'omit', 'omitted')
  count_from_now(c, tick, next)
  redis.call('INCR', c.P .. 'steering')
  local verb, what = 'restore', 'restored'
  if other ~= '' then verb, what = 'change', 'changed to ' .. other end
  note_act(c, name, act, verb, what, tick.other or '', other)
  return 1
end)

-- entry_run: requests an extra run.
-- args name asked act
--   asked: the run's token
-- returns 1, 0 = it was requested before, -1 = no such entry; asked again: 0
step.define('entry_run', {'allow-oom'}, function(c, args)
  local name, asked, act = unpack(args)
  if not ticks.read(c, name) then return -1 end
  local runs = c.P .. 'runs:' .. name
  if redis.call('ZADD', runs, 'NX', base.text_of(c.wall), asked) == 0 then return 0 end
  act = audit.act(c, act)
  redis.call('ZREMRANGEBYRANK', runs, 0, -RUNS - 1)
  redis.call('HSET', c.P .. 'schedule-asked', name .. '\n' .. asked, audit.kept(act))
  audit.note(c, act, 'run', 'entry', name, '', asked)
  return 1
end)
