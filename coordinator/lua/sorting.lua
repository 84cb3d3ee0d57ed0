-- Shared: sorters. collected:<name> holds "<sort key>\0<job id>" by their bytes, batch:<name> what a flush has sealed,
-- sorter:<name> when the first came and when it is due, sorters when each is to be looked at; 0 = a batch is under way.
-- include base

local function schedule(name)
  local due = redis.call('HGET', P .. 'sorter:' .. name, 'due')
  if redis.call('EXISTS', P .. 'batch:' .. name) == 1 then due = 0 end
  if due then
    redis.call('ZADD', P .. 'sorters', due, name)
  else
    redis.call('ZREM', P .. 'sorters', name)
  end
end

-- It is over before it was let go.
local function uncollect(id)
  local name, key = string.match(redis.call('HGET', P .. 'job:' .. id, 'sorter'), '^([^\n]*)\n(.*)$')
  local collected, member = P .. 'collected:' .. name, key .. '\0' .. id
  redis.call('ZREM', collected, member)
  redis.call('ZREM', P .. 'batch:' .. name, member)
  if redis.call('EXISTS', collected) == 0 then redis.call('DEL', P .. 'sorter:' .. name) end
  schedule(name)
end
