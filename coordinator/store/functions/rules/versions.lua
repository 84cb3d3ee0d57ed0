-- Versions of documents: every member of a replica set has a version on its disk, or none has.
-- pointer:<doc> = "<version> <sha>" is what is committed, document:<doc> its entries, entry -> "<fence> <JSON>" (null =
-- removed). asked:<doc> lists updates that wait, prepare:<doc> is the version under way, acked:<doc> names the members
-- that have it on disk. server:<doc> is the run of Redis that served last; no version is begun while grace:<doc>
-- lives. A member is "<name>#<identity of its copies>"; that of an earlier version of this library has no identity.
local versions = {}

-- The members of this version report a sum, which begins so. Earlier versions know only the checksum of a file.
local SUM = '+'

-- The committed version and its checksum. A sum has a key of its own: to members of earlier versions the pointer says
-- that any checksum will do, so that they come in.
function versions.pointer(c, doc)
  local version, sha = string.match(redis.call('GET', c.P .. 'pointer:' .. doc) or '0 -', '^(%d+) (%S+)$')
  local of, sum = string.match(sha == '-' and redis.call('GET', c.P .. 'sum:' .. doc) or '', '^(%d+) (%S+)$')
  return version, of == version and sum or sha
end

function versions.point(c, doc, version, sha)
  local is_sum = string.sub(sha, 1, 1) == SUM
  redis.call('SET', c.P .. 'pointer:' .. doc, version .. ' ' .. (is_sum and '-' or sha))
  if is_sum then
    redis.call('SET', c.P .. 'sum:' .. doc, version .. ' ' .. sha)
  else
    redis.call('DEL', c.P .. 'sum:' .. doc)
  end
end

-- A node has the label document:<doc> while it is in the replica set. So jobs that need the document run nowhere else.
local function label(c, doc, member, on)
  local node = string.match(member, '^(.*)#') or member
  if redis.call('EXISTS', c.P .. 'node:' .. node) == 0 then return end
  if redis.call(on and 'SADD' or 'SREM', c.P .. 'serves:' .. node, 'label document:' .. doc) == 0 then return end
  for _, class in ipairs(redis.call('SMEMBERS', c.P .. 'classes')) do
    if string.find(class, '\ndocument:' .. doc, 1, true) then classes.match(c, node, class) end
  end
end

function versions.let_in(c, doc, member)
  redis.call('HSET', c.P .. 'replicas:' .. doc, member, SUM)
  redis.call('DEL', c.P .. 'out:' .. doc .. ':' .. member)
  label(c, doc, member, true)
end

-- `why` is for people: '' = it ends in good order.
function versions.put_out(c, doc, member, why)
  local was = redis.call('HDEL', c.P .. 'replicas:' .. doc, member)
  redis.call('HDEL', c.P .. 'acked:' .. doc, member)
  if why ~= '' then redis.call('SET', c.P .. 'out:' .. doc .. ':' .. member, why, 'PX', 3600000) end
  label(c, doc, member, false)
  return was
end

-- Members of earlier versions are marked by another value.
local function kind_of_checksum(c, doc)
  for _, mark in ipairs(redis.call('HVALS', c.P .. 'replicas:' .. doc)) do
    if mark ~= SUM then return '' end
  end
  return SUM
end

-- Wakes the author of an update.
function versions.wake(c, id, told)
  redis.call('RPUSH', c.P .. 'told:' .. id, told)
  redis.call('PEXPIRE', c.P .. 'told:' .. id, 60000)
end

local function tell(c, id, told)
  redis.call('SET', c.P .. 'update:' .. id, told, 'PX', 3600000)
  versions.wake(c, id, told)
end

function versions.grant_grace(c, doc) redis.call('SET', c.P .. 'grace:' .. doc, 1, 'PX', 1500, 'NX') end

-- A Redis that was started anew, or emptied, may have lost its end: members get time to say what lies on their disks,
-- from the first call on. The time that an earlier start gave and that is not over yet does not count.
function versions.settled(c, doc)
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if redis.call('GET', c.P .. 'server:' .. doc) == run then return true end
  redis.call('SET', c.P .. 'server:' .. doc, run)
  redis.call('DEL', c.P .. 'grace:' .. doc)
  versions.grant_grace(c, doc)
end

-- The author of an update that is not to be made is told: a greater fence was seen (stale); an entry is not as its
-- author read it (changed); or the update is made already, and asked again since a Redis that lost its end did not
-- know. A change is {entry, JSON, checksum of what was read or ''}; its fence is added. `seen`: entries as updates
-- before it in the same version leave them.
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

-- All updates that were asked for, in order, become the next version, unless one is under way.
function versions.prepare(c, doc)
  local asked, under_way = c.P .. 'asked:' .. doc, c.P .. 'prepare:' .. doc
  local function free() return redis.call('EXISTS', under_way, c.P .. 'grace:' .. doc) == 0 end
  while versions.settled(c, doc) and free() and redis.call('EXISTS', asked) == 1 do
    local seen, updates = {}, {}
    for _, text in ipairs(redis.call('LRANGE', asked, 0, 255)) do
      local update = cjson.decode(text)
      local told = refusal(c, doc, update, seen)
      if told then
        tell(c, update.id, told)
      else
        for _, change in ipairs(update.changes) do seen[change[1]] = change[4] .. ' ' .. change[2] end
        updates[#updates + 1] = cjson.encode(update)
      end
    end
    redis.call('LTRIM', asked, 256, -1)
    if updates[1] then
      redis.call('HSET', under_way, 'version', locks.next_fence(c), 'base', versions.pointer(c, doc),
        'begun', c.now_text, 'kind', kind_of_checksum(c, doc), 'updates', '[' .. table.concat(updates, ',') .. ']')
      redis.call('PUBLISH', c.P .. 'replica:' .. doc, 'prepare')
    end
  end
end

-- The checksum that most members have; a member with another is put out.
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

-- Its updates, as they were asked for, are in the document; their authors are told.
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
    tell(c, update.id, 'committed ' .. version)
  end
  redis.call('LTRIM', c.P .. 'history:' .. doc, 0, 99)
  versions.point(c, doc, version, sha)
  redis.call('DEL', c.P .. 'prepare:' .. doc, c.P .. 'acked:' .. doc)
  redis.call('PUBLISH', c.P .. 'replica:' .. doc, 'commit')
end

-- A version is committed once every member has it on its disk. Where nobody keeps the document, it is committed here
-- alone, without a checksum, after as long as a member would need to be heard.
function versions.commit(c, doc)
  local made = redis.call('HMGET', c.P .. 'prepare:' .. doc, 'version', 'base', 'updates', 'begun')
  local acked, members = {}, redis.call('HKEYS', c.P .. 'replicas:' .. doc)
  if not made[1] or made[2] ~= versions.pointer(c, doc) or (not members[1] and c.now < made[4] + 900) then return end
  for _, member in ipairs(members) do
    acked[member] = redis.call('HGET', c.P .. 'acked:' .. doc, member)
    if not acked[member] then return end
  end
  flip(c, doc, made[1], agreed(c, doc, acked) or '-', made[3])
  versions.prepare(c, doc)
end

return versions
