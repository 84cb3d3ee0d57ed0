-- Takes one message: the first that its taker has not settled in time, else the most urgent one that waits. It stays in
-- `taken` until it is settled, and nobody else takes it within the lease. A message longer than anybody may send is
-- cut.
-- KEYS taken lists…
--   taken: sorted set of the messages that were taken, by the instant at which the lease ends; lists: the queue's lists,
--   the most urgent first
-- ARGV tag lease longest
--   tag: never used before; lease: in ms; longest: bytes of a message that are kept
-- returns { entry, 1 = it was taken before, else 0 }, or {}; an entry: '<tag>/<size> <message>'
local taken, tag, lease, longest = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function lent(entry, again)
  redis.call('ZADD', taken, now + lease, entry)
  return { entry, again }
end

local entry = redis.call('ZRANGEBYSCORE', taken, '-inf', now, 'LIMIT', 0, 1)[1]
-- A lease that ends later than one of now: the clock went back.
entry = entry or redis.call('ZRANGEBYSCORE', taken, now + lease + 1, '+inf', 'LIMIT', 0, 1)[1]
if entry then return lent(entry, 1) end
for i = 2, #KEYS do
  local message = redis.call('LINDEX', KEYS[i], -1)
  if message then
    -- Written before it is removed: Redis may refuse to write (maxmemory), never to remove.
    local answer = lent(tag .. '/' .. #message .. ' ' .. string.sub(message, 1, longest), 0)
    redis.call('LTRIM', KEYS[i], 0, -2)
    return answer
  end
end
return {}
