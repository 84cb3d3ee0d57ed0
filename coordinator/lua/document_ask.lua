-- document_ask: ask for an update of some entries of a document.
-- KEYS prefix
-- ARGV doc update
--   update: JSON {id, fence, changes: [[entry, JSON or 'null', checksum]…], follow, who, why}; fence: '' = each entry
--   keeps its own; checksum: SHA-1 of "<fence> <JSON>" as its author read it, '' = whatever it is
-- returns asked | committed <version> | stale <fence> <entry> | changed <fence> <entry>; asked again: what became of it
-- include commit
local doc, update = unpack(ARGV)
local told = P .. 'update:' .. cjson.decode(update).id
local known = redis.call('GET', told)
if known == 'asked' then
  prepare(doc)
  commit(doc)
end
if known then return redis.call('GET', told) end
redis.call('SET', told, 'asked', 'PX', 3600000)
redis.call('RPUSH', P .. 'asked:' .. doc, update)
prepare(doc)
return redis.call('GET', told)
