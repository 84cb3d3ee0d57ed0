-- Classes: the app, queue and labels of a job, joined by newlines. New classes and new nodes are matched when they
-- appear: fits:<class> lists the nodes, classes:<node> the classes.
local classes = {}

-- Matches a node with a class. A class without an app (a plain client's) fits nodes of any app that has the task. A
-- draining node fits no class, not even a new one.
function classes.match(c, node, class)
  local app, queue, labels = string.match(class, '^([^\n]*)\n([^\n]*)(.*)$')
  local serves = c.P .. 'serves:' .. node
  local good = redis.call('HGET', c.P .. 'node:' .. node, 'closed') ~= '1'
    and (app == '' or redis.call('SISMEMBER', serves, 'app ' .. app) == 1)
    and redis.call('SISMEMBER', serves, 'queue ' .. queue) == 1
  for label in string.gmatch(labels, '[^\n]+') do
    good = good and redis.call('SISMEMBER', serves, 'label ' .. label) == 1
  end
  redis.call(good and 'SADD' or 'SREM', c.P .. 'fits:' .. class, node)
  if redis.call(good and 'SADD' or 'SREM', c.P .. 'classes:' .. node, class) == 1 then shares.part(c, node) end
end

function classes.know(c, class)
  if redis.call('SADD', c.P .. 'classes', class) == 0 then return end
  for _, node in ipairs(redis.call('ZRANGE', c.P .. 'alive', 0, -1)) do classes.match(c, node, class) end
end

-- True if a living node may run this. It tries a random fitting node first, which nearly always has the task.
function classes.can_run(c, class, task)
  local any = redis.call('SRANDMEMBER', c.P .. 'fits:' .. class)
  if not any then return false end
  if redis.call('SISMEMBER', c.P .. 'tasks:' .. any, task) == 1 then return true end
  for _, node in ipairs(redis.call('SMEMBERS', c.P .. 'fits:' .. class)) do
    if redis.call('SISMEMBER', c.P .. 'tasks:' .. node, task) == 1 then return true end
  end
  return false
end

-- Forgets classes without a fitting node and without ready jobs, a page at a time; a job that becomes ready adds its
-- class again. Returns the cursor of the next page.
function classes.forget_some(c, cursor)
  local next, page = unpack(redis.call('SSCAN', c.P .. 'classes', cursor, 'COUNT', 200))
  for _, class in ipairs(page) do
    if redis.call('EXISTS', c.P .. 'fits:' .. class, c.P .. 'ready:' .. class) == 0 then
      redis.call('SREM', c.P .. 'classes', class)
      shares.forget(c, class)
    end
  end
  return next
end

return classes
