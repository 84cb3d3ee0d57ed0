-- Schedules: beats agree on the entries of a source, and send each instant of an entry once. Instants go by the wall
-- clock, since people named them; the spans in which a beat must act go by the installation's clock.

-- Forgets entries that the source no longer has, unless another source has them by now.
local function forget_others(c, source, kept)
  local names = c.P .. 'schedule-entries:' .. source
  for _, name in ipairs(redis.call('SMEMBERS', names)) do
    if not kept[name] then
      redis.call('SREM', names, name)
      if redis.call('HGET', c.P .. 'tick:' .. name, 'source') == source then ticks.forget(c, name) end
    end
  end
end

-- News from operators and code: the number of changed schedules, the version of the stored entries, and the requested
-- runs, name and token in turns.
local function news(c)
  local versions = redis.call('MGET', c.P .. 'steering', c.P .. 'entries-version')
  local asked = redis.call('EXISTS', c.P .. 'schedule-asked') == 1
    and redis.call('HRANDFIELD', c.P .. 'schedule-asked', 64) or {}
  return {versions[1] or '0', versions[2] or '0', asked}
end

-- schedule_follow: confirms the current version of a source for a beat, or makes its version the current one.
-- args source version before lapse entries fours…
--   before: the version that the caller confirmed until now, '' = none; lapse: ms after which a confirmation ends
--   entries: 'none' = only confirm, else 'all'; fours: name, hash, next and text for people of each: a new or changed
--   entry counts from now; of a version that had to wait, from the last confirmation of the one before it
-- returns {verdict, now by the wall clock, lasts of the entries, names whose sender is overdue, news}; verdict:
--   current | behind; news: {steering, version of the stored entries, requested runs}
--   behind: another version is current, and the caller did not know the one before it; asked again: the same
step.define('schedule_follow', {}, function(c, args)
  local source, version, before, lapse, entries = unpack(args, 1, 5)
  local name = c.P .. 'schedule:' .. source
  local now, wall = base.text_of(c.now), base.text_of(c.wall)
  local current, seen, waits = unpack(redis.call('HMGET', name, 'version', 'seen', 'waits'))
  local alone = c.now - (tonumber(seen) or 0)
  local free = not current or current == before or alone > tonumber(lapse)
  if current ~= version and (entries == 'none' or not free) then
    redis.call('HSET', name, 'waits', version)
    return {'behind', wall, {}, {}, news(c)}
  end

  local rested = current and current ~= version and waits == version and tonumber(seen)
  local from = rested and base.text_of(c.wall - alone) or wall
  local lasts, kept = {}, {}
  for i = 6, #args, 4 do
    kept[args[i]] = true
    lasts[#lasts + 1] = ticks.follow(c, source, from, unpack(args, i, i + 3))
  end
  if entries == 'all' then
    redis.call('SADD', c.P .. 'schedule-sources', source)
    forget_others(c, source, kept)
  end
  redis.call('HSET', name, 'version', version, 'seen', now)
  if current ~= version then redis.call('HDEL', name, 'waits') end
  local overdue = redis.call('ZRANGEBYSCORE', c.P .. 'schedule-unsent', '-inf', now, 'LIMIT', 0, 64)
  return {'current', wall, lasts, overdue, news(c)}
end)

-- The word for an instant that an operator keeps from being sent; nil: none does.
local function kept_back(tick, instant)
  if tick.paused then return 'paused' end
  if tick.omit == instant then return 'omitted' end
end

-- tick_take: takes an instant of an entry for a beat. A job is put in line by this step; the beat must send an ordinary
-- task itself, and also an instant that another beat took and did not send.
-- args name hash other instant former next token lease word missed due beat most job…
--   hash: of the entry as the caller knows it; other: the schedule that replaces its own, '' = none
--   instant, former, next: ms since the epoch, instant 0 = only an unsent one; former: the last one that the caller
--   knows of: one that Redis lost is over, and the caller counts from `last`; token: the beat's; lease: ms in which it
--   must be sent; word: '' = send it, else skip it and log the word; missed: number of instants that nobody sends;
--   due: when it was to be sent; beat: its name for people; most: number of ticks to log; job: the arguments of
--   job_submit, none for an ordinary task
-- returns {verdict, instant, last, now by the wall clock, outcome of the job or ''}; asked again with the same token:
--   the same until tick_done, or over
--   verdict: sent | taken | passed | stale (another hash or schedule is current) | held (another beat sends) | over |
--   early
step.define('tick_take', {}, function(c, args)
  local name, hash, other, instant, former, next, token, lease, word, missed, due, beat, most = unpack(args, 1, 13)
  local tick, keyed = ticks.read(c, name) or {}, #args > 13
  local wall = base.text_of(c.wall)
  local function answer(verdict, which, outcome) return {verdict, which, tick.last or '0', wall, outcome or ''} end

  if tick.hash ~= hash or (tick.other or '') ~= other then return answer('stale', instant) end
  if tick.unsent then
    if tick.token ~= token and tonumber(tick.till) > c.now then return answer('held', tick.unsent) end
    keyed = keyed and instant == tick.unsent
    instant = tick.unsent
  elseif tonumber(instant) <= tonumber(tick.last) or tonumber(tick.last) < tonumber(former) then
    return answer('over', instant)
  elseif tonumber(instant) > c.wall then
    return answer('early', instant)
  else
    tick.last = instant
    redis.call('HSET', tick.name, 'last', instant, 'next', next)
    if tick.omit and tonumber(tick.omit) <= tonumber(instant) then redis.call('HDEL', tick.name, 'omit', 'omitted') end
  end

  word = kept_back(tick, instant) or word
  if word == '' and not keyed then
    ticks.hold(c, tick, name, instant, token, tonumber(lease))
    return answer('taken', instant)
  end
  local verdict = word == '' and 'sent' or 'passed'
  if verdict == 'sent' then word = submit.asked(c, args, 14)[1] end
  ticks.strike_out(c, tick, name)
  if word ~= 'paused' then ticks.note(c, name, instant, word, missed, due, beat, most) end
  return answer(verdict, instant, word)
end)

-- tick_done: notes that the taken instant was sent, or never can be; the next one may be taken.
-- args name instant token word missed due beat most
--   word: sent | failed | missed; the others as in tick_take
-- returns 1, or 0 if another beat took it over; asked again: 0, and nothing changes
step.define('tick_done', {'allow-oom'}, function(c, args)
  local name, instant, token, word, missed, due, beat, most = unpack(args)
  local tick = ticks.read(c, name)
  if not tick or tick.unsent ~= instant or tick.token ~= token then return 0 end
  ticks.strike_out(c, tick, name)
  ticks.note(c, name, instant, word, missed, due, beat, most)
  return 1
end)

-- run_take: takes a requested run for a beat. A job is put in line by this step; the beat sends an ordinary task
-- itself.
-- args name asked token lease word beat most job…
--   asked: the run's own token; token, lease, beat, most, job: as in tick_take; word: '' = send it, else the run was
--   sent, or cannot be, and is logged with this word
-- returns {verdict, outcome of the job or ''}; verdict: sent | taken | noted | held | over; asked again: over
step.define('run_take', {}, function(c, args)
  local name, asked, token, lease, word, beat, most = unpack(args, 1, 7)
  local runs, field, wall = c.P .. 'schedule-asked', name .. '\n' .. asked, base.text_of(c.wall)
  local request = redis.call('HGET', runs, field)
  if not request then return {'over', ''} end
  local good, act = pcall(cjson.decode, request)
  if not good or type(act) ~= 'table' then act = {} end
  if act.token ~= token and (act.till or 0) > c.now then return {'held', ''} end
  local verdict = word == '' and 'sent' or 'noted'
  if verdict == 'sent' and #args == 7 then
    act.token, act.till = token, c.now + lease
    redis.call('HSET', runs, field, cjson.encode(act))
    return {'taken', ''}
  end
  if verdict == 'sent' then word = submit.asked(c, args, 8)[1] end
  redis.call('HDEL', runs, field)
  ticks.log(c, name, most, '!' .. asked, wall, word, beat, cjson.encode({by = act.by, why = act.why}))
  return {verdict, word}
end)
