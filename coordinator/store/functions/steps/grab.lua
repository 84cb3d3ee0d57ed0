-- Grabs: one process among many works on an instance of a key. Its lane is held as a lock's is; grab:<lane> remembers
-- who works on it, or did, and how it ended.

local FIELDS = {'state', 'job', 'token', 'fence', 'attempt', 'about', 'started', 'ended', 'value'}

-- The fields of a grab by their names; state '' = nobody has grabbed it. One that runs, and whose lane is not held any
-- more, is abandoned.
local function read(c, lane)
  settle.end_lapsed(c, lane)
  local grab = {name = c.P .. 'grab:' .. lane}
  for i, value in ipairs(redis.call('HMGET', grab.name, unpack(FIELDS))) do grab[FIELDS[i]] = value or nil end
  grab.state = grab.state or ''
  if grab.state ~= 'running' then return grab end
  local state, token = unpack(redis.call('HMGET', c.P .. 'job:' .. grab.job, 'state', 'token'))
  if state ~= 'running' or token ~= grab.token then grab.state = 'abandoned' end
  return grab
end

local function told(verdict, grab)
  return {verdict, grab.fence or '', grab.attempt or '', grab.about or '', grab.started or '', grab.ended or '',
    grab.value or ''}
end

-- Its record and its place in the lists are kept for so long (ms); a key as long as one of its instances.
local function keep_for(c, lane, key, instance, ms)
  redis.call('PEXPIRE', c.P .. 'grab:' .. lane, ms)
  local instances, keys = c.P .. 'grabs:' .. key, c.P .. 'grabs'
  redis.call('ZADD', instances, c.wall + ms, instance)
  local last = redis.call('ZRANGE', instances, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', keys, last, key)
  for _, list in ipairs({instances, keys}) do
    redis.call('ZREMRANGEBYSCORE', list, '-inf', c.wall)
    redis.call('PEXPIRE', list, redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')[2] - c.wall)
  end
end

-- grab_take: one process grabs an instance that nobody works on, or whose work has failed or was abandoned.
-- args lane key instance id token ttl lifetime keep about
--   ttl, lifetime, keep: ms; about: JSON of the process
-- returns {won | running | complete | busy, fence, attempt, about, started, ended, value} of its winner; busy: the lane
--   is held, and nobody knows by whom; asked again: the same
step.define('grab_take', {}, function(c, args)
  local lane, key, instance, id, token, ttl, lifetime, keep, about = unpack(args)
  local grab = read(c, lane)
  if grab.state == 'running' and grab.token == token then return told('won', grab) end
  if grab.state == 'running' or grab.state == 'complete' then return told(grab.state, grab) end
  local fence = held.take(c, id, lane, token, ttl, lifetime)
  if not fence then return told('busy', {}) end
  local attempt = string.format('%d', (tonumber(grab.attempt) or 0) + 1)
  local taken = {fence = fence, attempt = attempt, about = about, started = base.text_of(c.wall)}
  redis.call('HDEL', grab.name, 'ended', 'value')
  redis.call('HSET', grab.name, 'state', 'running', 'job', id, 'token', token, 'fence', fence, 'attempt', attempt,
    'about', about, 'started', taken.started)
  keep_for(c, lane, key, instance, keep + lifetime)
  return told('won', taken)
end)

-- grab_end: the winner has completed the instance, or failed; all who wait are told.
-- args lane key instance id token state keep value
--   state: complete | failed; keep: ms; value: JSON of the result, or of the reason
-- returns ended, or lost where another has taken over, or may; asked again: the same
step.define('grab_end', {'allow-oom'}, function(c, args)
  local lane, key, instance, id, token, state, keep, value = unpack(args)
  local grab = read(c, lane)
  if grab.token ~= token then return 'lost' end
  if grab.state == state then return 'ended' end
  if grab.state ~= 'running' then return 'lost' end
  held.give_up(c, id, token)
  redis.call('HSET', grab.name, 'state', state, 'ended', base.text_of(c.wall), 'value', value)
  keep_for(c, lane, key, instance, tonumber(keep))
  redis.call('PUBLISH', c.P .. 'grabbed:' .. lane, state)
  return 'ended'
end)

-- grab_look: how an instance is.
-- args lane
-- returns {'' | running | complete | failed | abandoned, fence, attempt, about, started, ended, value} of its last
--   winner; asked again: the same
step.define('grab_look', {'allow-oom'}, function(c, args)
  local grab = read(c, args[1])
  return told(grab.state, grab)
end)
