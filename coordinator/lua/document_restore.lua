-- document_restore: Redis lost its end; a member has a later version on its disk. Authors who wait ask again:
-- what they asked for may be in it.
-- KEYS prefix
-- ARGV doc member version sha entries…
--   entries: entry, "<fence> <JSON>"
-- returns 1, or 0 where the pointer is as far
-- include commit
local doc, member, version, sha = unpack(ARGV, 1, 4)
if tonumber((pointer_of(doc))) >= tonumber(version) then return 0 end
local before, document = {}, P .. 'document:' .. doc
local had = redis.call('HGETALL', document)
for i = 1, #had, 2 do before[had[i]] = had[i + 1] end
redis.call('DEL', document)
for i = 5, #ARGV, 2 do
  redis.call('HSET', document, ARGV[i], ARGV[i + 1])
  if before[ARGV[i]] ~= ARGV[i + 1] then redis.call('HSET', P .. 'behind:' .. doc, ARGV[i], version) end
end
local function ask_again(update)
  redis.call('DEL', P .. 'update:' .. update.id)
  wake(update.id, 'asked')
end
local under_way = redis.call('HGET', P .. 'prepare:' .. doc, 'updates')
for _, update in ipairs(cjson.decode(under_way or '[]')) do ask_again(update) end
for _, text in ipairs(redis.call('LRANGE', P .. 'asked:' .. doc, 0, -1)) do ask_again(cjson.decode(text)) end
redis.call('DEL', P .. 'prepare:' .. doc, P .. 'acked:' .. doc, P .. 'replicas:' .. doc, P .. 'asked:' .. doc)
redis.call('SET', P .. 'pointer:' .. doc, version .. ' ' .. sha)
redis.call('HSET', P .. 'replicas:' .. doc, member, now_text)
if settled(doc) then be_gracious(doc) end
if tonumber(redis.call('GET', P .. 'fence') or 0) < tonumber(version) then redis.call('SET', P .. 'fence', version) end
redis.call('PUBLISH', P .. 'replica:' .. doc, 'commit')
return 1
