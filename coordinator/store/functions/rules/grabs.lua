-- Grabs: grab:<lane> remembers who works on an instance of a key, or did, and how it ended. grabs:<key> lists the
-- instances of a key, and grabs the keys, by when they are forgotten. Plain code holds the lane of its instance as a
-- lock's is held; a job that was submitted with an instance stands in it, and has the field `grab`: how long (ms) the
-- record is kept once it is over.
local grabs = {}

local FIELDS = {'state', 'job', 'token', 'fence', 'attempt', 'about', 'started', 'ended', 'value'}
local AGES = 3e12 -- ms: a job's record is not forgotten while the job is not over, however long it waits

-- The fields of a grab by their names; state '' = nobody has grabbed it. A job has no token here.
function grabs.read(c, lane)
  local grab = {name = c.P .. 'grab:' .. lane}
  for i, value in ipairs(redis.call('HMGET', grab.name, unpack(FIELDS))) do grab[FIELDS[i]] = value or nil end
  grab.state = grab.state or ''
  return grab
end

function grabs.told(verdict, grab)
  return {verdict, grab.fence or '', grab.attempt or '', grab.about or '', grab.started or '', grab.ended or '',
    grab.value or ''}
end

local function names_of(lane)
  local first = string.find(lane, '\31', 1, true)
  local second = string.find(lane, '\31', first + 1, true)
  return string.sub(lane, first + 1, second - 1), string.sub(lane, second + 1)
end

local function forget_old(c, list) redis.call('ZREMRANGEBYSCORE', list, '-inf', base.text_of(c.wall)) end

-- A list lives for longer than its last entry; it is looked through when its ttl is too short. Few commands do.
local function list_until(c, list, entry, ms)
  redis.call('ZADD', list, 'GT', base.text_of(c.wall + ms), entry)
  if redis.call('PTTL', list) >= ms then return false end
  forget_old(c, list)
  redis.call('PEXPIRE', list, base.text_of(2 * ms))
  return true
end

local function list(c, lane, ms)
  local key, instance = names_of(lane)
  if list_until(c, c.P .. 'grabs:' .. key, instance, ms) then list_until(c, c.P .. 'grabs', key, 2 * ms) end
end

-- Now it is to be listed for less.
local function list_less(c, lane, ms)
  local key, instance = names_of(lane)
  local instances, keys = c.P .. 'grabs:' .. key, c.P .. 'grabs'
  redis.call('ZADD', instances, base.text_of(c.wall + ms), instance)
  local till = redis.call('ZRANGE', instances, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', keys, till, key)
  for _, one in ipairs({instances, keys}) do
    forget_old(c, one)
    redis.call('PEXPIRE', one, base.text_of(redis.call('ZRANGE', one, -1, -1, 'WITHSCORES')[2] - c.wall))
  end
end

-- There is a winner. `grab`: as it was; it gets what is new. ms: how long it is kept.
local function write(c, lane, grab, ms, job, token, fence, about, started)
  local attempt = string.format('%d', (tonumber(grab.attempt) or 0) + 1)
  if grab.ended then redis.call('HDEL', grab.name, 'ended', 'value') end
  redis.call('HSET', grab.name, 'state', 'running', 'job', job, 'token', token, 'fence', fence, 'attempt', attempt,
    'about', about, 'started', started)
  grab.state, grab.job, grab.token, grab.fence, grab.attempt = 'running', job, token, fence, attempt
  grab.about, grab.started, grab.ended, grab.value = about, started, nil, nil
  redis.call('PEXPIRE', grab.name, base.text_of(ms))
  list(c, lane, ms)
end

-- Plain code has won, and holds the lane under this id and token.
function grabs.begin_code(c, lane, grab, ms, id, token, fence, about)
  write(c, lane, grab, ms, id, token, fence, about, base.text_of(c.wall))
end

local function end_(c, grab, lane, state, keep, value)
  redis.call('HSET', grab, 'state', state, 'ended', base.text_of(c.wall), 'value', value)
  redis.call('PEXPIRE', grab, keep)
  redis.call('PUBLISH', c.P .. 'grabbed:' .. lane, state)
end

-- Plain code has ended, and says how. It stays listed as long as its lifetime allowed.
function grabs.end_code(c, lane, grab, state, keep, value) end_(c, grab.name, lane, state, keep, value) end

-- The process that works, as losers are told of it.
local function about_job(id, node, runner)
  local host, pid = string.match(node, '@(.*)$'), string.match(runner, '^%d+')
  return cjson.encode({identifier = id, host = host or node, pid = tonumber(pid) or 0, node = node})
end

-- A job has won: it works, or waits for the node that will.
function grabs.begin_job(c, lane, grab, keep, id)
  write(c, lane, grab, keep + AGES, id, '', '', about_job(id, '', ''), '')
end

-- A runner was given the job.
function grabs.take_job(c, lane, id, node, runner, fence)
  local name = c.P .. 'grab:' .. lane
  if redis.call('HGET', name, 'job') ~= id then return end
  redis.call('HSET', name, 'fence', fence, 'about', about_job(id, node, runner), 'started', base.text_of(c.wall))
end

-- The job is over. It stays listed as one of plain code does.
function grabs.end_job(c, lane, id, keep, state, lifetime)
  local name = c.P .. 'grab:' .. lane
  if redis.call('HGET', name, 'job') ~= id then return end
  local result, error = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'result', 'error'))
  local well = state == 'succeeded'
  end_(c, name, lane, well and 'complete' or 'failed', keep, well and result or not well and error or '')
  list_less(c, lane, keep + lifetime)
end

return grabs
