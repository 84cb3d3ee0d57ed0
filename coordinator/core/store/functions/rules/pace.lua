-- Pace: how slow a node is, compared with the fleet: 1 = average, 5 = its jobs take five times as long. times:<task>
-- has the median run time of a task on each node that ran it often enough; the median of those is the fleet's.
local pace = {}

local DOUBT = 0.22 -- log(1.25): medians of equally fast nodes differ by this much

-- Updates a node's pace. run_times: JSON {task: [runs, median]}, '' = the node is gone.
function pace.measure(c, node, run_times)
  local name = c.P .. 'node:' .. node
  local good, before = pcall(cjson.decode, redis.call('HGET', name, 'times') or '{}')
  for task in pairs(good and type(before) == 'table' and before or {}) do
    redis.call('ZREM', c.P .. 'times:' .. task, node)
  end
  if run_times == '' then return end
  local sum, weight = 0, 0
  for task, own in pairs(cjson.decode(run_times)) do
    local times, runs, median = c.P .. 'times:' .. task, own[1], math.max(own[2], 1e-6)
    redis.call('ZADD', times, median, node)
    local middle = math.floor((redis.call('ZCARD', times) - 1) / 2)
    local fleet = redis.call('ZRANGE', times, middle, middle, 'WITHSCORES')[2]
    sum, weight = sum + runs * math.log(median / fleet), weight + runs
  end
  local slower = weight > 0 and sum / weight or 0
  if math.abs(slower) < DOUBT then slower = 0 end
  redis.call('HSET', name, 'times', run_times, 'pace', string.format('%.2f', math.exp(slower)))
end

return pace
