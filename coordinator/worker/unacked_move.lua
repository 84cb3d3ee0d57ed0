-- A message goes from a dead node's own queue to another, behind what is there.
-- KEYS from lists…
--   lists: where it goes, none = it is dropped
-- ARGV stored message
--   stored: as it lies there; message: as it is to lie in the lists
-- returns 1 when this call did it, else 0
local stored, message = unpack(ARGV)
if redis.call('LREM', KEYS[1], -1, stored) == 0 then return 0 end
for i = 2, #KEYS do redis.call('LPUSH', KEYS[i], message) end
return 1
