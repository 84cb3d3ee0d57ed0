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

-- News from operators and code: the number of changed schedules, the version of the stored entries, the requested
-- runs, name and token in turns, and the backfills to look after, name and at_once in turns.
local function news(c)
  local versions = redis.call('MGET', c.P .. 'steering', c.P .. 'entries-version')
  local asked = redis.call('EXISTS', c.P .. 'schedule-asked') == 1
    and redis.call('HRANDFIELD', c.P .. 'schedule-asked', 64) or {}
  local filled = redis.call('EXISTS', c.P .. 'backfills') == 1
    and redis.call('HRANDFIELD', c.P .. 'backfills', 64, 'WITHVALUES') or {}
  return {versions[1] or '0', versions[2] or '0', asked, filled}
end

step.define('schedule_follow', {}, function(c, source, version, before, lapse, entries, args, from)
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
  local counted = rested and base.text_of(c.wall - alone) or wall
  local lasts, kept = {}, {}
  for i = from, #args, 4 do
    kept[args[i]] = true
    lasts[#lasts + 1] = ticks.follow(c, source, counted, unpack(args, i, i + 3))
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

step.define('tick_take', {}, function(
  c, name, hash, other, instant, former, next, token, lease, word, missed, due, beat, most, args, from)
  local tick, keyed = ticks.read(c, name) or {}, #args >= from
  local wall = base.text_of(c.wall)
  -- outcome?: of the job
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
  if verdict == 'sent' then
    local reply = submit.asked(c, args, from)
    word = reply[1]
    if word == 'skipped' then backfills.join(c, name, args[from], instant, reply[3]) end
  end
  ticks.strike_out(c, tick, name)
  if word ~= 'paused' then ticks.note(c, name, instant, word, missed, due, beat, most) end
  return answer(verdict, instant, word)
end)

step.define('tick_done', {'allow-oom'}, function(c, name, instant, token, word, missed, due, beat, most)
  local tick = ticks.read(c, name)
  if not tick or tick.unsent ~= instant or tick.token ~= token then return 0 end
  ticks.strike_out(c, tick, name)
  ticks.note(c, name, instant, word, missed, due, beat, most)
  return 1
end)

step.define('run_take', {}, function(c, name, asked, token, lease, word, beat, most, args, from)
  local runs, field, wall = c.P .. 'schedule-asked', name .. '\n' .. asked, base.text_of(c.wall)
  local request = redis.call('HGET', runs, field)
  if not request then return {'over', ''} end
  local good, act = pcall(cjson.decode, request)
  if not good or type(act) ~= 'table' then act = {} end
  if act.token ~= token and (act.till or 0) > c.now then return {'held', ''} end
  local verdict = word == '' and 'sent' or 'noted'
  if verdict == 'sent' and #args < from then
    act.token, act.till = token, c.now + lease
    redis.call('HSET', runs, field, cjson.encode(act))
    return {'taken', ''}
  end
  if verdict == 'sent' then word = submit.asked(c, args, from)[1] end
  redis.call('HDEL', runs, field)
  ticks.log(c, name, most, '!' .. asked, wall, word, beat, cjson.encode({by = act.by, why = act.why}))
  return {verdict, word}
end)
