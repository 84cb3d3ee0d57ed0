-- document_note: keep what the permanent store was last seen to have, unless somebody noted otherwise meanwhile.
-- KEYS prefix
-- ARGV doc name before after
--   before: the note as it was read, '' = none; after: '' = none any more
-- returns 1, or 0 where it is another by now; asked again: the same
local name, field, before, after = KEYS[1] .. 'stored:' .. ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now_is = redis.call('HGET', name, field) or ''
if now_is == after then return 1 end
if now_is ~= before then return 0 end
if after == '' then redis.call('HDEL', name, field) else redis.call('HSET', name, field, after) end
return 1
