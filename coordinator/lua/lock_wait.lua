-- lock_wait: may the waiter go on? Says so with its fence where its turn has come.
-- KEYS prefix
-- ARGV id
-- returns {state or '', fence or ''}
-- include lapsed
local id = ARGV[1]
local job = read(id)
if job and job.state == 'waiting' then
  for _, key in ipairs(keys_of(job.keys)) do end_lapsed(key) end
  ring_readied(0)
end
local found = redis.call('HMGET', P .. 'job:' .. id, 'state', 'fence')
return {found[1] or '', found[2] or ''}
