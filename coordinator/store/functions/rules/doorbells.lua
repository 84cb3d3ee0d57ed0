-- Doorbells: which node to wake. room = nodes by score; 1 and above is full. rung:<node> = bells on their way, by the
-- instant at which the node's warden rings (again).
local doorbells = {}

local TURNS = 2 ^ 36 -- rings until the turns begin anew

-- How busy a node is: what is occupied over what there is; free room counts for less where jobs run slowly (`pace`). A
-- node whose CPU or memory is used up (`braked`) comes behind all that are less than half full, one that does not
-- answer (`deaf`) last. The CPU decides between those nearly equal; of equal ones, the one rung longest ago is first.
function doorbells.rescore(c, node)
  local about = redis.call('HMGET', c.P .. 'node:' .. node, 'capacity', 'ordinary', 'load', 'closed', 'braked', 'deaf',
    'pace', 'turn')
  if not about[1] or about[4] == '1' then return redis.call('ZREM', c.P .. 'room', node) end
  local occupied = redis.call('HLEN', c.P .. 'work:' .. node) + redis.call('ZCARD', c.P .. 'rung:' .. node) + about[2]
  local score = occupied / about[1]
  if score < 1 then
    score = 1 - (1 - score) / (about[7] or 1)
    if about[5] == '1' then score = 0.5 + math.max(score, 0) / 2 end
    if about[6] == '1' then score = 0.98 + math.max(score, 0) / 100 end
    local turn = (about[8] or 0) % TURNS / TURNS / 10000
    score = math.min(score + math.min(tonumber(about[3]), 1) / 100 + turn, 0.9999)
  end
  redis.call('ZADD', c.P .. 'room', score, node)
end

-- A bell's name begins with the instant it was rung first: the warden rings again after as long as it has waited.
function doorbells.bell(c, node)
  local turn = redis.call('INCR', c.P .. 'bells')
  local bell = c.now .. '-' .. turn
  redis.call('HSET', c.P .. 'node:' .. node, 'turn', turn)
  local put = beside.put_bell(c, node, bell, turn)
  redis.call('ZADD', c.P .. 'rung:' .. node, c.now + (put and base.AGAIN or c.delay), bell)
  doorbells.rescore(c, node)
  if not put then base.add(c, 'rung', {node, bell}) end
end

local function fits(c, node, class, task)
  return redis.call('SISMEMBER', c.P .. 'fits:' .. class, node) == 1
    and redis.call('SISMEMBER', c.P .. 'tasks:' .. node, task) == 1
end

-- The last choices are kept for operators; the node that came next of those that fit is told where it is on the same
-- page.
local function note_choice(c, page, i, class, task, passed)
  local j = i + 2
  while page[j] and not fits(c, page[j], class, task) do j = j + 2 end
  local choice = {at = c.wall, score = page[i + 1] + 0, class = class, passed = passed, next = page[j],
    next_score = page[j + 1]}
  redis.call('LPUSH', c.P .. 'chosen:' .. page[i], cjson.encode(choice))
  redis.call('LTRIM', c.P .. 'chosen:' .. page[i], 0, 9)
end

-- Rings the least busy node that fits and has room, and says whether there is one. Where none is, a runner that ends
-- will take the job.
function doorbells.ring(c, class, task)
  local passed = 0
  repeat
    local page = redis.call('ZRANGEBYSCORE', c.P .. 'room', '-inf', '(1', 'WITHSCORES', 'LIMIT', passed, 64)
    for i = 1, #page, 2 do
      if fits(c, page[i], class, task) then
        note_choice(c, page, i, class, task, passed)
        doorbells.bell(c, page[i])
        return true
      end
      passed = passed + 1
    end
  until #page < 128
end

-- One bell for each job that became ready, less one of the class that the step has served itself.
function doorbells.ring_readied(c)
  ready.write_fresh(c)
  local served = c.served
  for _, job in ipairs(c.readied or {}) do
    if job.class == served then served = nil else doorbells.ring(c, job.class, job.task) end
  end
end

return doorbells
