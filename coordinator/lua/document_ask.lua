-- document_ask: ask for an update of some entries of a document.
-- KEYS prefix
-- ARGV doc update
--   update: JSON {id, fence: digits, changes: [[entry, JSON or 'null', fence as read or '']…], follow, who, why}
-- returns asked | committed <version> | stale <fence> <entry> | changed <fence> <entry>; asked again: what became of it
-- include prepare
local doc, update = unpack(ARGV)
local told = P .. 'update:' .. cjson.decode(update).id
local known = redis.call('GET', told)
if known then return known end
redis.call('SET', told, 'asked', 'PX', 3600000)
redis.call('RPUSH', P .. 'asked:' .. doc, update)
prepare(doc)
return redis.call('GET', told)
