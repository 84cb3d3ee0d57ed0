-- document_leave: a member leaves the replica set, or cannot write its disk.
-- KEYS prefix
-- ARGV doc member
-- returns 1 if it was in it
-- include commit
local doc, member = unpack(ARGV)
local was = redis.call('HDEL', P .. 'replicas:' .. doc, member)
redis.call('HDEL', P .. 'acked:' .. doc, member)
commit(doc)
return was
