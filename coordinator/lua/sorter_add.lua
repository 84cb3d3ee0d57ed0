-- sorter_add: hold an order until its sorter is flushed.
-- KEYS prefix
-- ARGV id keys_text sorter sort_key idle longest asked priority not_before path identity fields…
--   sort_key: its bytes are its place; idle, longest: ms until the flush, after the last and after the first order;
--   longest 0: without end; asked: token of who asks, by which it is answered again; not_before: ms since the epoch,
--   0 = now; path, identity: the file that it is made of, '' = none; fields: as of job_submit
-- returns collected, duplicate (the id is another's), or seen (this very file has its order)
-- include apart
-- include class
local id, keys_text, sorter, sort_key, idle, longest, asked, priority, not_before, path, identity = unpack(ARGV, 1, 11)
local name, fields = P .. 'job:' .. id, {}
for i = 12, #ARGV, 2 do fields[ARGV[i]] = ARGV[i + 1] end

if path ~= '' and redis.call('HGET', P .. 'seen:' .. sorter, path) == identity then return 'seen' end
if redis.call('EXISTS', name) == 1 then
  return redis.call('HGET', name, 'asked') == asked and 'collected' or 'duplicate'
end

create(fields.class)
redis.call('HSET', name, 'keys', keys_text, 'submitted', now, 'sorter', sorter .. '\n' .. sort_key, 'asked', asked,
  unpack(ARGV, 12))
if priority ~= '0' then redis.call('HSET', name, 'priority', priority) end
if not_before ~= '0' then redis.call('HSET', name, 'not_before', not_before) end
into(id, 'collected')
if fields.expires then redis.call('ZADD', P .. 'expiry', fields.expires, id) end
if path ~= '' then redis.call('HSET', P .. 'seen:' .. sorter, path, identity) end
redis.call('ZADD', P .. 'collected:' .. sorter, 0, sort_key .. '\0' .. id)

local about = P .. 'sorter:' .. sorter
redis.call('HSETNX', about, 'first', now)
local first, due = unpack(redis.call('HMGET', about, 'first', 'due'))
if not due or tonumber(due) > now then -- what is due stays so, whoever comes before the look
  due = now + idle
  if longest ~= '0' then due = math.min(due, first + longest) end
  redis.call('HSET', about, 'due', string.format('%.0f', due))
end
schedule(sorter)
return 'collected'
