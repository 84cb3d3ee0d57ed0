-- Shared: which node to wake. room = nodes by score; 1 and above is full.
-- include base

-- How busy it is: what is occupied over what there is. A node whose CPU or memory is used up (`braked`) comes behind
-- all that are less than half full, one that does not answer (`deaf`) last; the CPU decides between those nearly equal.
local function rescore(node)
  local about = redis.call('HMGET', P .. 'node:' .. node, 'capacity', 'ordinary', 'load', 'closed', 'braked', 'deaf')
  if not about[1] or about[4] == '1' then return redis.call('ZREM', P .. 'room', node) end
  local occupied = redis.call('HLEN', P .. 'work:' .. node) + redis.call('ZCARD', P .. 'rung:' .. node) + about[2]
  local score = occupied / about[1]
  if score < 1 then
    if about[5] == '1' then score = 0.5 + score / 2 end
    if about[6] == '1' then score = 0.98 + score / 100 end
    score = math.min(score + math.min(tonumber(about[3]), 1) / 100, 0.9999)
  end
  redis.call('ZADD', P .. 'room', score, node)
end

-- A bell's name begins with the instant it was rung first: the warden rings again after as long as it has waited.
local function bell_for(node, delay)
  local bell = now .. '-' .. redis.call('INCR', P .. 'bells')
  redis.call('ZADD', P .. 'rung:' .. node, now + delay, bell)
  rescore(node)
  rung[#rung + 1] = {node, bell}
end

-- Ring the least busy node that fits and has room; where none has, a runner that ends will take the job.
-- delay: ms after which the node's warden rings (again); 0 = the caller cannot publish, the warden does at once.
local function ring(class, task, delay)
  local function fits(node)
    return redis.call('SISMEMBER', P .. 'fits:' .. class, node) == 1
      and redis.call('SISMEMBER', P .. 'tasks:' .. node, task) == 1
  end
  -- The last choices are kept for operators; who came next of those that fit is told where it is on the same page.
  local function note_choice(p, i, passed)
    local j = i + 2
    while p[j] and not fits(p[j]) do j = j + 2 end
    local choice = {at = now, score = p[i + 1] + 0, class = class, passed = passed, next = p[j], next_score = p[j + 1]}
    redis.call('LPUSH', P .. 'chosen:' .. p[i], cjson.encode(choice))
    redis.call('LTRIM', P .. 'chosen:' .. p[i], 0, 9)
  end
  local passed, page = 0, nil
  repeat
    page = redis.call('ZRANGEBYSCORE', P .. 'room', '-inf', '(1', 'WITHSCORES', 'LIMIT', passed, 64)
    for i = 1, #page, 2 do
      if fits(page[i]) then
        note_choice(page, i, passed)
        return bell_for(page[i], delay)
      end
      passed = passed + 1
    end
  until #page < 128
end
