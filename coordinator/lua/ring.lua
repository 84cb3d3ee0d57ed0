-- Shared: which node to wake. `rung` collects {node, bell} pairs for the caller to publish.
-- room = nodes by score (occupied / capacity, then CPU load); 1 and above is full.
local P = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rung = {}

-- A full Redis (`maxmemory`) refuses what adds, unless its script freed before: said by what must go on even then.
local function though_full() redis.call('DEL', P .. 'nothing') end

local function rescore(node)
  local about = redis.call('HMGET', P .. 'node:' .. node, 'capacity', 'ordinary', 'load', 'draining')
  if not about[1] or about[4] == '1' then return redis.call('ZREM', P .. 'room', node) end
  local occupied = redis.call('HLEN', P .. 'work:' .. node) + redis.call('ZCARD', P .. 'rung:' .. node)
  local score = (occupied + about[2]) / about[1] + math.min(tonumber(about[3]), 1) / 10000
  redis.call('ZADD', P .. 'room', score, node)
end

-- A bell's name begins with the instant it was rung first: the warden rings again after as long as it has waited.
local function bell_for(node, delay)
  local bell = now .. '-' .. redis.call('INCR', P .. 'bells')
  redis.call('ZADD', P .. 'rung:' .. node, now + delay, bell)
  rescore(node)
  rung[#rung + 1] = {node, bell}
end

local function fits(node, class, task)
  return redis.call('SISMEMBER', P .. 'fits:' .. class, node) == 1
    and redis.call('SISMEMBER', P .. 'tasks:' .. node, task) == 1
end

-- Ring the least busy node that fits and has room; where none has, a runner that ends will take the job.
-- delay: ms after which the node's warden rings (again); 0 = the caller cannot publish, the warden does at once.
local function ring(class, task, delay)
  for _, node in ipairs(redis.call('ZRANGEBYSCORE', P .. 'room', '-inf', '(1', 'LIMIT', 0, 64)) do
    if fits(node, class, task) then return bell_for(node, delay) end
  end
end

-- A class without an app (a plain client's) fits nodes of any app that knows the task.
-- A class seen for the first time learns which living nodes fit it; a node that registers learns its classes.
local function match(node, class)
  local app, queue, labels = string.match(class, '^([^\n]*)\n([^\n]*)(.*)$')
  local serves = P .. 'serves:' .. node
  local good = (app == '' or redis.call('SISMEMBER', serves, 'app ' .. app) == 1)
    and redis.call('SISMEMBER', serves, 'queue ' .. queue) == 1
  for label in string.gmatch(labels, '[^\n]+') do
    good = good and redis.call('SISMEMBER', serves, 'label ' .. label) == 1
  end
  redis.call(good and 'SADD' or 'SREM', P .. 'fits:' .. class, node)
  redis.call(good and 'SADD' or 'SREM', P .. 'classes:' .. node, class)
end

local function know(class)
  if redis.call('SADD', P .. 'classes', class) == 1 then
    for _, node in ipairs(redis.call('ZRANGE', P .. 'alive', 0, -1)) do match(node, class) end
  end
end
