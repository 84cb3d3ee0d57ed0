-- Troubles: errands take those that somebody is to be told of. A rule notes them (rules/history.lua).

-- trouble_take: takes the first trouble of an app that somebody is to be told of.
-- args app
-- returns "<kind> <ms> <id>", or false; asked again: it is offered again after 30 s, until it is removed
step.define('trouble_take', {'allow-oom'}, function(c, args)
  local troubles = c.P .. 'troubles:' .. args[1]
  local first = redis.call('ZRANGEBYSCORE', troubles, '-inf', c.now, 'LIMIT', 0, 1)[1]
  if first then redis.call('ZADD', troubles, c.now + 30000, first) end
  return first or false
end)
