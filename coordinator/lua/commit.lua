-- Shared: a version is committed once every member of the replica set has it on its disk.
-- include prepare

-- The checksum that most have; whoever has another is put out.
local function agreed(doc, acked)
  local count, best = {}, nil
  for _, sha in pairs(acked) do
    count[sha] = (count[sha] or 0) + 1
    if not best or count[sha] > count[best] or (count[sha] == count[best] and sha < best) then best = sha end
  end
  for member, sha in pairs(acked) do
    if sha ~= best then redis.call('HDEL', P .. 'replicas:' .. doc, member) end
  end
  return best
end

-- Its updates, as they were asked for, are in the document; those who asked are told.
local function flip(doc, version, sha, updates)
  for _, update in ipairs(cjson.decode(updates)) do
    local entries = {}
    for i, change in ipairs(update.changes) do
      redis.call('HSET', P .. 'document:' .. doc, change[1], change[4] .. ' ' .. change[2])
      if update.follow then redis.call('HSET', P .. 'behind:' .. doc, change[1], version) end
      entries[i] = change[1]
    end
    redis.call('LPUSH', P .. 'history:' .. doc, cjson.encode({version = version, at = now, entries = entries,
      fence = update.changes[1][4], who = update.who, why = update.why}))
    tell(update.id, 'committed ' .. version)
  end
  redis.call('LTRIM', P .. 'history:' .. doc, 0, 99)
  redis.call('SET', P .. 'pointer:' .. doc, version .. ' ' .. sha)
  redis.call('DEL', P .. 'prepare:' .. doc, P .. 'acked:' .. doc)
  redis.call('PUBLISH', P .. 'replica:' .. doc, 'commit')
end

-- Where nobody keeps it, it is committed here alone, without a checksum, after as long as a member would need to be heard.
local function commit(doc)
  local made = redis.call('HMGET', P .. 'prepare:' .. doc, 'version', 'base', 'updates', 'begun')
  local acked, members = {}, redis.call('HKEYS', P .. 'replicas:' .. doc)
  if not made[1] or made[2] ~= pointer_of(doc) or (not members[1] and now < made[4] + 900) then return end
  for _, member in ipairs(members) do
    acked[member] = redis.call('HGET', P .. 'acked:' .. doc, member)
    if not acked[member] then return end
  end
  flip(doc, made[1], agreed(doc, acked) or '-', made[3])
  prepare(doc)
end
