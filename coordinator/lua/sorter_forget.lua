-- sorter_forget: these files are gone; what replaced one since is not forgotten.
-- KEYS prefix
-- ARGV sorter pairs…
--   pairs: path and identity in turns
-- returns how many were forgotten
local seen, gone = KEYS[1] .. 'seen:' .. ARGV[1], 0
for i = 2, #ARGV, 2 do
  if redis.call('HGET', seen, ARGV[i]) == ARGV[i + 1] then gone = gone + redis.call('HDEL', seen, ARGV[i]) end
end
return gone
