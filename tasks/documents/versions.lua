-- Versions of documents. A version is committed once every member of the replica set has it on its disk.
-- pointer:<doc> = "<version> <sha>" is what is committed, document:<doc> its entries, entry -> "<fence> <JSON>" (null =
-- removed). asked:<doc> lists updates that wait, prepare:<doc> is the version under way, acked:<doc> names the members
-- that have it on disk. server:<doc> is the run id of the Redis that served last. While grace:<doc> lives, no version
-- begins. A member is "<name>#<identity of its copies>".
local versions = {}

-- The committed version and its checksum; '-' = it was committed while the document had no members.
function versions.pointer(c, doc)
  return string.match(redis.call('GET', c.P .. 'pointer:' .. doc) or '0 -', '^(%d+) (%S+)$')
end

function versions.point(c, doc, version, sha) redis.call('SET', c.P .. 'pointer:' .. doc, version .. ' ' .. sha) end

-- Gives a node the label document:<doc> while it is in the replica set, so that jobs that need the document run there.
local function label(c, doc, member, on)
  local node = string.match(member, '^(.*)#') or member
  if redis.call('EXISTS', c.P .. 'node:' .. node) == 0 then return end
  if redis.call(on and 'SADD' or 'SREM', c.P .. 'serves:' .. node, 'label document:' .. doc) == 0 then return end
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes')) do
    if string.find(class, '\ndocument:' .. doc, 1, true) then classes.match(c, node, class) end
  end
end

function versions.let_in(c, doc, member)
  redis.call('SADD', c.P .. 'replicas:' .. doc, member)
  redis.call('DEL', c.P .. 'out:' .. doc .. ':' .. member)
  label(c, doc, member, true)
end

-- `why`: a sentence for operators; '' = it ends in good order.
function versions.put_out(c, doc, member, why)
  local was = redis.call('SREM', c.P .. 'replicas:' .. doc, member)
  redis.call('HDEL', c.P .. 'acked:' .. doc, member)
  if why ~= '' then redis.call('SET', c.P .. 'out:' .. doc .. ':' .. member, why, 'PX', 3600000) end
  label(c, doc, member, false)
  return was
end

-- Wakes the author of an update.
function versions.wake(c, id, outcome)
  redis.call('RPUSH', c.P .. 'answer:' .. id, outcome)
  redis.call('PEXPIRE', c.P .. 'answer:' .. id, 60000)
end

local function answer(c, id, outcome)
  redis.call('SET', c.P .. 'update:' .. id, outcome, 'PX', 3600000)
  versions.wake(c, id, outcome)
end

function versions.grant_grace(c, doc) redis.call('SET', c.P .. 'grace:' .. doc, 1, 'PX', 1500, 'NX') end

-- nil at the first call after a start of Redis, which may have lost its last writes. From then on members have a grace
-- period to report what lies on their disks. It replaces the period of an earlier start.
function versions.settled(c, doc)
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if redis.call('GET', c.P .. 'server:' .. doc) == run then return true end
  redis.call('SET', c.P .. 'server:' .. doc, run)
  redis.call('DEL', c.P .. 'grace:' .. doc)
  versions.grant_grace(c, doc)
end

-- The answer to an update that is not to be made: stale (a greater fence was seen), changed (an entry is not as its
-- author read it), or committed (it was made before a Redis lost its last writes, and was asked again). nil = make
-- it. A change is {entry, JSON, checksum of what was read or ''}; its fence is added here. `seen`: entries as earlier
-- updates of the same version leave them.
local function refusal(c, doc, update, seen)
  local made, refused = true, nil
  for _, change in ipairs(update.changes) do
    local entry = change[1]
    local has = seen[entry] or redis.call('HGET', c.P .. 'document:' .. doc, entry) or '0 null'
    local fence = string.match(has, '^%d+')
    change[4] = update.fence == '' and fence or update.fence
    made = made and not seen[entry] and has == change[4] .. ' ' .. change[2]
    if tonumber(change[4]) < tonumber(fence) then
      refused = refused or 'stale ' .. fence .. ' ' .. entry
    elseif change[3] ~= '' and change[3] ~= redis.sha1hex(has) then
      refused = refused or 'changed ' .. fence .. ' ' .. entry
    end
  end
  return made and 'committed ' .. versions.pointer(c, doc) or refused
end

-- Makes the next version of all updates that wait, in order, unless a version is under way.
function versions.prepare(c, doc)
  local asked, under_way = c.P .. 'asked:' .. doc, c.P .. 'prepare:' .. doc
  local function free() return redis.call('EXISTS', under_way, c.P .. 'grace:' .. doc) == 0 end
  while versions.settled(c, doc) and free() and redis.call('EXISTS', asked) == 1 do
    local seen, updates = {}, {}
    for _, text in ipairs(redis.call('LRANGE', asked, 0, 255)) do
      local update = cjson.decode(text)
      local refused = refusal(c, doc, update, seen)
      if refused then
        answer(c, update.id, refused)
      else
        for _, change in ipairs(update.changes) do seen[change[1]] = change[4] .. ' ' .. change[2] end
        updates[#updates + 1] = cjson.encode(update)
      end
    end
    redis.call('LTRIM', asked, 256, -1)
    if updates[1] then
      redis.call('HSET', under_way, 'version', locks.next_fence(c), 'base', versions.pointer(c, doc),
        'begun', c.now_text, 'updates', '[' .. table.concat(updates, ',') .. ']')
      redis.call('PUBLISH', c.P .. 'replica:' .. doc, 'prepare')
    end
  end
end

-- The checksum that most members have. Removes members with another.
local function agreed(c, doc, acked)
  local count, best = {}, nil
  for _, sha in pairs(acked) do
    count[sha] = (count[sha] or 0) + 1
    if not best or count[sha] > count[best] or (count[sha] == count[best] and sha < best) then best = sha end
  end
  for member, sha in pairs(acked) do
    if sha ~= best then versions.put_out(c, doc, member, 'it made another version than the others') end
  end
  return best
end

-- Commits a version: changes the document, moves the pointer, and answers the authors of its updates.
local function flip(c, doc, version, sha, updates)
  for _, update in ipairs(cjson.decode(updates)) do
    local entries = {}
    for i, change in ipairs(update.changes) do
      redis.call('HSET', c.P .. 'document:' .. doc, change[1], change[4] .. ' ' .. change[2])
      if update.follow then redis.call('HSET', c.P .. 'behind:' .. doc, change[1], version) end
      entries[i] = change[1]
    end
    redis.call('LPUSH', c.P .. 'history:' .. doc, cjson.encode({version = version, at = c.wall, entries = entries,
      fence = update.changes[1][4], who = update.who, why = update.why}))
    if update.act then
      local act = audit.act(c, update.act)
      audit.note(c, act, act.verb, act.kind, act.name, act.before, act.after)
    end
    answer(c, update.id, 'committed ' .. version)
  end
  redis.call('LTRIM', c.P .. 'history:' .. doc, 0, 99)
  versions.point(c, doc, version, sha)
  redis.call('DEL', c.P .. 'prepare:' .. doc, c.P .. 'acked:' .. doc)
  redis.call('PUBLISH', c.P .. 'replica:' .. doc, 'commit')
end

-- Commits the version under way if every member has it on its disk. Without members it is committed in Redis alone,
-- without a checksum, after the time in which a member would have reported.
function versions.commit(c, doc)
  local made = redis.call('HMGET', c.P .. 'prepare:' .. doc, 'version', 'base', 'updates', 'begun')
  local acked, members = {}, redis.call('SMEMBERS', c.P .. 'replicas:' .. doc)
  if not made[1] or made[2] ~= versions.pointer(c, doc) or (not members[1] and c.now < made[4] + 900) then return end
  for _, member in ipairs(members) do
    acked[member] = redis.call('HGET', c.P .. 'acked:' .. doc, member)
    if not acked[member] then return end
  end
  flip(c, doc, made[1], agreed(c, doc, acked) or '-', made[3])
  versions.prepare(c, doc)
end

return versions
