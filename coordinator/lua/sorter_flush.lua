-- sorter_flush: of a sorter that is due, the next orders go into their lines; the first step seals its batch.
-- KEYS prefix
-- ARGV most
--   most: how many orders at most
-- returns {how many sorters are still due, rung}
-- include join
-- include later
-- include full
local sorter = redis.call('ZRANGEBYSCORE', P .. 'sorters', '-inf', now, 'LIMIT', 0, 1)[1]
if not sorter then return {0, rung} end
though_full()
local batch, collected = P .. 'batch:' .. sorter, P .. 'collected:' .. sorter
if redis.call('EXISTS', batch) == 0 then
  redis.call('DEL', P .. 'sorter:' .. sorter)
  if redis.call('EXISTS', collected) == 1 then redis.call('RENAME', collected, batch) end
end

local function let_go(id)
  local job = redis.call('HMGET', P .. 'job:' .. id, 'state', 'keys', 'priority', 'not_before')
  if job[1] ~= 'collected' then return end
  local score = new_score(job[3] or 0, 'back')
  redis.call('SREM', P .. 'state:collected', id)
  if job[4] and tonumber(job[4]) > now then
    start_later(id, score, job[4])
  else
    join(id, keys_of(job[2]), score)
  end
end

for _, member in ipairs(redis.call('ZRANGE', batch, 0, ARGV[1] - 1)) do
  let_go(string.match(member, '%z(.*)$'))
  redis.call('ZREM', batch, member)
end
schedule(sorter)
ring_readied(2000)
return {redis.call('ZCOUNT', P .. 'sorters', '-inf', now), rung}
