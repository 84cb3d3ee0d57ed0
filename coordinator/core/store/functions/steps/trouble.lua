-- Alerts: maintenance takes what a rule noted (rules/history.lua), and raises an alert about it.

step.define('trouble_take', {'allow-oom'}, function(c, app)
  local troubles = c.P .. 'troubles:' .. app
  local first = redis.call('ZRANGEBYSCORE', troubles, '-inf', c.now, 'LIMIT', 0, 1)[1]
  if first then redis.call('ZADD', troubles, c.now + 30000, first) end
  return first or false
end)
