-- Wake-ups: which node is woken, and how. room = nodes by score; 1 and above is full. rung:<node> = wake-ups that no
-- runner has answered, by the instant at which the node's clock wakes its worker itself.
local wakes = {}

local TURNS = 2 ^ 36 -- wake-ups after which the count of turns restarts
local AGAIN = 2000 -- ms after which a node's clock wakes its worker itself
local KEPT = '60000' -- ms for which a list is kept that no clock reads

-- Computes a node's score: used slots over all slots; free slots count less where jobs run slowly (`pace`). A node
-- whose CPU or memory is used up (`braked`) comes after all that are less than half full, a node that does not answer
-- (`deaf`) last. CPU load decides between nearly equal nodes; of equal ones, the node woken longest ago comes first.
function wakes.rescore(c, node)
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

-- Makes the name of a wake-up, which begins with the instant at which it is to come.
local function name_of(c, turn, delay) return base.text_of(c.now + delay) .. '-' .. turn end

-- Wakes a node. delay?: ms after which. Its clock waits at a list of its own: another worker of that
-- name reads another one.
function wakes.wake(c, node, delay)
  local turn, name = redis.call('INCR', c.P .. 'bells'), c.P .. 'node:' .. node
  local wake = name_of(c, turn, delay or 0)
  local list = c.P .. 'wakes:' .. (redis.call('HGET', name, 'incarnation') or '') .. ':' .. node
  redis.call('HSET', name, 'turn', turn)
  redis.call('RPUSH', list, delay and wake .. '+' .. base.text_of(delay) or wake)
  redis.call('PEXPIRE', list, KEPT)
  redis.call('ZADD', c.P .. 'rung:' .. node, c.now + AGAIN + (delay or 0), wake)
  wakes.rescore(c, node)
  return wake
end

-- Makes a wake-up for a runner of this node that waits itself and then answers it.
function wakes.promise(c, node)
  local wake = name_of(c, redis.call('INCR', c.P .. 'bells'), 0)
  redis.call('ZADD', c.P .. 'rung:' .. node, c.now + AGAIN, wake)
  wakes.rescore(c, node)
  return wake
end

local function fits(c, node, class, task)
  return redis.call('SISMEMBER', c.P .. 'fits:' .. class, node) == 1
    and redis.call('SISMEMBER', c.P .. 'tasks:' .. node, task) == 1
end

-- Wakes the least busy node that fits and has room; returns the wake-up if there is one. Otherwise the next runner that
-- becomes free takes the job. delay?: ms.
function wakes.wake_best(c, class, task, delay)
  local passed = 0
  repeat
    local page = redis.call('ZRANGEBYSCORE', c.P .. 'room', '-inf', '(1', 'LIMIT', base.text_of(passed), '64')
    for _, node in ipairs(page) do
      if fits(c, node, class, task) then
        return wakes.wake(c, node, delay)
      end
    end
    passed = passed + #page
  until #page < 64
end

-- Wakes a node for each job that became ready, less one of the class that the step served itself.
function wakes.wake_readied(c)
  ready.write_fresh(c)
  local served = c.served
  for _, job in ipairs(c.readied or {}) do
    if job.class == served then served = nil else wakes.wake_best(c, job.class, job.task) end
  end
end

return wakes
