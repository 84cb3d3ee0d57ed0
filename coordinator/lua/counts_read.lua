-- counts_read: how many jobs there are in each state, and what was counted over time, at one moment.
-- KEYS prefix
-- returns names and numbers in turns; created = waiting and the other states and the outcomes added up
-- include apart
-- include drop
local all = redis.call('HGETALL', P .. 'counts')
local count = {created = 0, retries = 0, losses = 0, faults = 0}
for i = 1, #all, 2 do count[all[i]] = tonumber(all[i + 1]) end
local live = count.created
for _, outcome in ipairs({'succeeded', 'failed', 'rolled_back', 'double_fault', 'cancelled', 'expired'}) do
  count[outcome] = count[outcome] or 0
  live = live - count[outcome]
end
count.ready, count.running = 0, redis.call('ZCARD', P .. 'leases')
for _, class in ipairs(redis.call('SMEMBERS', P .. 'classes')) do
  count.ready = count.ready + count_ready(class, -1)
end
for _, state in ipairs(APART) do
  count[state] = redis.call('SCARD', P .. 'state:' .. state)
end
for _, id in ipairs(redis.call('SMEMBERS', P .. 'state:rolling_back')) do
  local where = redis.call('ZSCORE', P .. 'leases', id) and 'running' or 'ready'
  count[where] = count[where] - 1
end
count.waiting = live - count.ready - count.running
for _, state in ipairs(APART) do count.waiting = count.waiting - count[state] end
local reply = {}
for name, number in pairs(count) do
  reply[#reply + 1] = name
  reply[#reply + 1] = number
end
return reply
