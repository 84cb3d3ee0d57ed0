-- Schedules: beats agree on the entries of a source, and send each instant of an entry once. People named these
-- instants, so the wall clock tells them; the spans in which a beat must act go by the installation's clock.

local function ms_text(number) return string.format('%.0f', number) end

-- One entry of a source as its beat has it: when it was sent last. A new or changed one counts from now.
local function follow(c, source, name, hash, next)
  local tick = c.P .. 'tick:' .. name
  local known, last = unpack(redis.call('HMGET', tick, 'hash', 'last'))
  if known ~= hash then
    last = ms_text(c.wall)
    redis.call('HSET', tick, 'hash', hash, 'last', last, 'next', next)
  end
  redis.call('HSET', tick, 'source', source)
  redis.call('SADD', c.P .. 'schedule-entries:' .. source, name)
  return last
end

-- Entries that the source has no more are forgotten, unless another source has them since.
local function forget_others(c, source, kept)
  local names = c.P .. 'schedule-entries:' .. source
  for _, name in ipairs(redis.call('SMEMBERS', names)) do
    if not kept[name] then
      redis.call('SREM', names, name)
      if redis.call('HGET', c.P .. 'tick:' .. name, 'source') == source then
        redis.call('DEL', c.P .. 'tick:' .. name)
        redis.call('ZREM', c.P .. 'schedule-unsent', name)
      end
    end
  end
end

-- schedule_follow: stands for the version of a source that is current, or makes another current.
-- args source version before lapse entries triples…
--   before: the version that the caller stood for until now, '' = none; lapse: ms after which nobody stands for one
--   entries: 'none' to stand only, else 'all'; triples: name, hash, next of each: a new or changed one counts from now
-- returns {verdict, now by the wall clock, lasts of the entries, names whose sender is overdue}; verdict: current |
--   behind. behind: another version is current, and the caller has not seen that one change; asked again: the same
step.define('schedule_follow', {}, function(c, args)
  local source, version, before, lapse, entries = unpack(args, 1, 5)
  local name, now = c.P .. 'schedule:' .. source, ms_text(c.now)
  local current, seen = unpack(redis.call('HMGET', name, 'version', 'seen'))
  local free = not current or current == before or c.now - seen > tonumber(lapse)
  if current ~= version and (entries == 'none' or not free) then return {'behind', ms_text(c.wall), {}, {}} end

  local lasts, kept = {}, {}
  for i = 6, #args, 3 do
    kept[args[i]] = true
    lasts[#lasts + 1] = follow(c, source, args[i], args[i + 1], args[i + 2])
  end
  if entries == 'all' then forget_others(c, source, kept) end
  redis.call('HSET', name, 'version', version, 'seen', now)
  local overdue = redis.call('ZRANGEBYSCORE', c.P .. 'schedule-unsent', '-inf', now, 'LIMIT', 0, 64)
  return {'current', ms_text(c.wall), lasts, overdue}
end)

-- tick_take: one instant of an entry for the beat that will send it; or one that a beat took and left unsent.
-- args name hash instant next token lease send
--   hash: the entry as the caller knows it; instant, next: ms since the epoch, instant 0 = only what was left unsent;
--   token: the beat's; lease: ms in which it must have been sent; send: '0' = too old, pass it over
-- returns {verdict, instant, last, now by the wall clock}; asked again with the same token: the same, until tick_done
--   verdict: taken | passed | stale (another hash is current) | held (another beat sends) | over | early
step.define('tick_take', {}, function(c, args)
  local name, hash, instant, next, token, lease, send = unpack(args)
  local tick = c.P .. 'tick:' .. name
  local known, last, unsent, owner, till =
    unpack(redis.call('HMGET', tick, 'hash', 'last', 'unsent', 'token', 'till'))

  local function answer(verdict, which) return {verdict, which, last or '0', ms_text(c.wall)} end
  local function take(which)
    till = ms_text(c.now + lease)
    redis.call('HSET', tick, 'unsent', which, 'token', token, 'till', till)
    redis.call('ZADD', c.P .. 'schedule-unsent', till, name)
    return answer('taken', which)
  end

  if known ~= hash then return answer('stale', instant) end
  if unsent then
    if owner ~= token and tonumber(till) > c.now then return answer('held', unsent) end
    return take(unsent)
  end
  if tonumber(instant) <= tonumber(last) then return answer('over', instant) end
  if tonumber(instant) > c.wall then return answer('early', instant) end
  last = instant
  redis.call('HSET', tick, 'last', instant, 'next', next)
  if send == '0' then return answer('passed', instant) end
  return take(instant)
end)

-- tick_done: the instant taken was sent, or never can be; the next one may be taken.
-- args name instant token
-- returns 1, or 0 when another beat had taken it over; asked again: 0, and nothing changes
step.define('tick_done', {'allow-oom'}, function(c, args)
  local name, instant, token = unpack(args)
  local tick = c.P .. 'tick:' .. name
  local unsent, owner = unpack(redis.call('HMGET', tick, 'unsent', 'token'))
  if unsent ~= instant or owner ~= token then return 0 end
  redis.call('HDEL', tick, 'unsent', 'token', 'till')
  redis.call('ZREM', c.P .. 'schedule-unsent', name)
  return 1
end)
