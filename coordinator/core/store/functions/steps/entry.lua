-- Entries of the schedule: code stores and removes them; operators steer entries of any source.

local STORED = 'entries' -- the source of the entries that code stores
local CHANGES = 10000 -- number of changes to stored entries that are remembered
local RUNS = 1000 -- number of runs of an entry whose tokens are remembered

local function note_change(c, name)
  redis.call('RPUSH', c.P .. 'entries-log', name)
  redis.call('LTRIM', c.P .. 'entries-log', -CHANGES, -1)
  return redis.call('INCR', c.P .. 'entries-version')
end

step.define('entry_put', {}, function(c, name, text, hash, next, about, act)
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

step.define('entry_remove', {'allow-oom'}, function(c, name, act)
  local tick = ticks.read(c, name)
  if tick and tick.source ~= STORED then return {-1, tick.source} end
  if redis.call('HDEL', c.P .. 'entries', name) == 0 then return {0} end
  redis.call('SREM', c.P .. 'schedule-entries:' .. STORED, name)
  redis.call('HDEL', c.P .. 'backfills', name)
  ticks.forget(c, name)
  note_change(c, name)
  audit.note(c, audit.act(c, act), 'remove', 'entry', name, tick and tick.hash or '', '')
  return {1}
end)

-- Reads a stored entry for a beat: its name, text ('' = it was removed) and last instant.
local function described(c, name, text)
  return {name, text or '', redis.call('HGET', c.P .. 'tick:' .. name, 'last') or '0'}
end

step.define('entries_read', {'no-writes'}, function(c, since, cursor)
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

-- Lets the entry count from now: no earlier instant is due.
local function count_from_now(c, tick, next)
  if tonumber(tick.last) < c.wall then redis.call('HSET', tick.name, 'last', base.text_of(c.wall)) end
  redis.call('HSET', tick.name, 'next', next)
end

step.define('entry_pause', {'allow-oom'}, function(c, name, act)
  local tick = ticks.read(c, name)
  if not tick then return {-1, 0} end
  local left = tick.unsent and math.max(0, tick.till - c.now) or 0
  if tick.unsent and left == 0 then ticks.strike_out(c, tick, name) end
  if tick.paused then return {0, left} end
  act = audit.act(c, act)
  redis.call('HSET', tick.name, 'paused', audit.kept(act))
  ticks.note_act(c, name, act, 'pause', 'paused', 'open', 'paused')
  return {1, left}
end)

step.define('entry_resume', {'allow-oom'}, function(c, name, next, act)
  local tick = c.P .. 'tick:' .. name
  if redis.call('HDEL', tick, 'paused') == 0 then return redis.call('EXISTS', tick) - 1 end
  local entry = ticks.read(c, name)
  if entry then count_from_now(c, entry, next) end
  ticks.note_act(c, name, audit.act(c, act), 'resume', 'resumed', 'paused', 'open')
  return 1
end)

step.define('entry_omit', {'allow-oom'}, function(c, name, instant, act)
  local tick = ticks.read(c, name)
  if not tick then return -1 end
  if tick.omit == instant then return 0 end
  if tonumber(instant) <= tonumber(tick.last) then return -2 end
  act = audit.act(c, act)
  redis.call('HSET', tick.name, 'omit', instant, 'omitted', audit.kept(act))
  ticks.note_act(c, name, act, 'skip', 'omits ' .. instant, tick.omit or '', instant)
  return 1
end)

step.define('entry_change', {'allow-oom'}, function(c, name, other, next, act)
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
  ticks.note_act(c, name, act, verb, what, tick.other or '', other)
  return 1
end)

step.define('entry_run', {'allow-oom'}, function(c, name, asked, act)
  if not ticks.read(c, name) then return -1 end
  local runs = c.P .. 'runs:' .. name
  if redis.call('ZADD', runs, 'NX', base.text_of(c.wall), asked) == 0 then return 0 end
  act = audit.act(c, act)
  redis.call('ZREMRANGEBYRANK', runs, 0, -RUNS - 1)
  redis.call('HSET', c.P .. 'schedule-asked', name .. '\n' .. asked, audit.kept(act))
  audit.note(c, act, 'run', 'entry', name, '', asked)
  return 1
end)
