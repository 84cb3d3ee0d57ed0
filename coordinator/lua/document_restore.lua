-- document_restore: Redis lost its end; a member has a later version on its disk. What was under way is asked for again.
-- KEYS prefix
-- ARGV doc member version sha grace entries…
--   grace: ms in which nothing new is prepared, since others may have a later one still; entries: entry, "<fence> <JSON>"
-- returns 1, or 0 where the pointer is as far
-- include commit
local doc, member, version, sha, grace = unpack(ARGV, 1, 5)
if tonumber((pointer_of(doc))) >= tonumber(version) then return 0 end
local before, document = {}, P .. 'document:' .. doc
local had = redis.call('HGETALL', document)
for i = 1, #had, 2 do before[had[i]] = had[i + 1] end
redis.call('DEL', document)
for i = 6, #ARGV, 2 do
  redis.call('HSET', document, ARGV[i], ARGV[i + 1])
  if before[ARGV[i]] ~= ARGV[i + 1] then redis.call('HSET', P .. 'behind:' .. doc, ARGV[i], version) end
end
local updates = redis.call('HGET', P .. 'prepare:' .. doc, 'updates')
local again = updates and cjson.decode(updates) or {}
for i = #again, 1, -1 do redis.call('LPUSH', P .. 'asked:' .. doc, cjson.encode(again[i])) end
redis.call('DEL', P .. 'prepare:' .. doc, P .. 'acked:' .. doc, P .. 'replicas:' .. doc)
redis.call('SET', P .. 'pointer:' .. doc, version .. ' ' .. sha)
redis.call('HSET', P .. 'replicas:' .. doc, member, now_text)
redis.call('SET', P .. 'grace:' .. doc, 1, 'PX', grace)
if tonumber(redis.call('GET', P .. 'fence') or 0) < tonumber(version) then redis.call('SET', P .. 'fence', version) end
redis.call('PUBLISH', P .. 'replica:' .. doc, 'commit')
return 1
