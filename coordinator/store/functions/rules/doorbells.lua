-- Doorbells: choose the node to wake. room = nodes by score; 1 and above is full. rung:<node> = unanswered bells, by
-- the instant at which the node's warden rings them again.
local doorbells = {}

local TURNS = 2 ^ 36 -- rings after which the count of turns restarts

-- Computes a node's score: used slots over all slots; free slots count less where jobs run slowly (`pace`). A node
-- whose CPU or memory is used up (`braked`) comes after all that are less than half full, a node that does not answer
-- (`deaf`) last. CPU load decides between nearly equal nodes; of equal ones, the node rung longest ago comes first.
function doorbells.rescore(c, node)
  local about = redis.call('HMGET', c.P .. 'node:' .. node, 'capacity', 'ordinary', 'load', 'closed', 'braked', 'deaf',
    'pace', 'turn')
  local capacity, ordinary, load = tonumber(about[1]), tonumber(about[2]) or 0, tonumber(about[3]) or 0
  if not capacity or about[4] == '1' then return redis.call('ZREM', c.P .. 'room', node) end
  local occupied = redis.call('HLEN', c.P .. 'work:' .. node) + redis.call('ZCARD', c.P .. 'rung:' .. node) + ordinary
  local score = occupied / capacity
  if score < 1 then
    score = 1 - (1 - score) / (tonumber(about[7]) or 1)
    if about[5] == '1' then score = 0.5 + math.max(score, 0) / 2 end
    if about[6] == '1' then score = 0.98 + math.max(score, 0) / 100 end
    local turn = (tonumber(about[8]) or 0) % TURNS / TURNS / 10000
    score = math.min(score + math.min(load, 1) / 100 + turn, 0.9999)
  end
  redis.call('ZADD', c.P .. 'room', score, node)
end

-- Puts a bell into a node's queue, if the app's broker is on this server. The node registered both: bell_queue =
-- "<database> <home> <name of the queue>", home being the installation's database, and bell_message. tag: unique for
-- each message. Returns false if the node registered none, or Redis refuses.
function doorbells.put_bell(c, node, bell, tag)
  local queue, message = unpack(redis.call('HMGET', c.P .. 'node:' .. node, 'bell_queue', 'bell_message'))
  if not queue then return false end
  local database, home, name = string.match(queue, '^(%d+) (%d+) (.*)$')
  message = string.gsub(string.gsub(message, 'THE_BELL', bell), 'THE_TAG', tag)
  if database ~= home and redis.pcall('SELECT', database).err then return false end
  local reply = redis.pcall('LPUSH', name, message)
  if database ~= home then redis.call('SELECT', home) end
  return type(reply) ~= 'table'
end

-- Rings a node: puts the bell into its queue, else leaves it to the caller. A bell's name begins with the instant of
-- its first ring.
function doorbells.bell(c, node)
  local turn = redis.call('INCR', c.P .. 'bells')
  local bell = c.now .. '-' .. turn
  redis.call('HSET', c.P .. 'node:' .. node, 'turn', turn)
  local put = doorbells.put_bell(c, node, bell, turn)
  redis.call('ZADD', c.P .. 'rung:' .. node, c.now + (put and base.AGAIN or c.delay), bell)
  doorbells.rescore(c, node)
  if not put then base.add(c, 'rung', {node, bell}) end
end

local function fits(c, node, class, task)
  return redis.call('SISMEMBER', c.P .. 'fits:' .. class, node) == 1
    and redis.call('SISMEMBER', c.P .. 'tasks:' .. node, task) == 1
end

-- Rings the least busy node that fits and has room; true if there is one. Otherwise the next runner that becomes free
-- takes the job.
function doorbells.ring(c, class, task)
  local passed = 0
  repeat
    local page = redis.call('ZRANGEBYSCORE', c.P .. 'room', '-inf', '(1', 'LIMIT', base.text_of(passed), '64')
    for _, node in ipairs(page) do
      if fits(c, node, class, task) then
        doorbells.bell(c, node)
        return true
      end
    end
    passed = passed + #page
  until #page < 64
end

-- Rings one bell for each job that became ready, less one of the class that the step served itself.
function doorbells.ring_readied(c)
  ready.write_fresh(c)
  local served = c.served
  for _, job in ipairs(c.readied or {}) do
    if job.class == served then served = nil else doorbells.ring(c, job.class, job.task) end
  end
end

return doorbells
