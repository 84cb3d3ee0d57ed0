-- Sorters: collected:<name> has "<sort key>\0<job id>" in byte order, batch:<name> the jobs that a flush has sealed,
-- sorter:<name> the times of the first job and of the flush, sorters the time of the next look at each; 0 = a flush is
-- under way.
local sorters = {}

function sorters.schedule(c, name)
  local due = redis.call('HGET', c.P .. 'sorter:' .. name, 'due')
  if redis.call('EXISTS', c.P .. 'batch:' .. name) == 1 then due = 0 end
  if due then
    redis.call('ZADD', c.P .. 'sorters', tonumber(due) or 0, name)
  else
    redis.call('ZREM', c.P .. 'sorters', name)
  end
end

-- Removes a job that ends while its sorter still holds it.
function sorters.remove(c, id)
  local name, key = string.match(redis.call('HGET', c.P .. 'job:' .. id, 'sorter'), '^([^\n]*)\n(.*)$')
  local collected, member = c.P .. 'collected:' .. name, key .. '\0' .. id
  redis.call('ZREM', collected, member)
  redis.call('ZREM', c.P .. 'batch:' .. name, member)
  if redis.call('EXISTS', collected) == 0 then redis.call('DEL', c.P .. 'sorter:' .. name) end
  sorters.schedule(c, name)
end

return sorters
