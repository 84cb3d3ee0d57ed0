-- Documents: authors ask for updates, members of the replica set report what lies on their disks.

step.define('document_ask', {}, function(c, doc, update)
  local outcome = c.P .. 'update:' .. cjson.decode(update).id
  local known = redis.call('GET', outcome)
  if known == 'asked' then
    versions.prepare(c, doc)
    versions.commit(c, doc)
  end
  if known then return redis.call('GET', outcome) end
  redis.call('SET', outcome, 'asked', 'PX', 3600000)
  redis.call('RPUSH', c.P .. 'asked:' .. doc, update)
  versions.prepare(c, doc)
  return redis.call('GET', outcome)
end)

-- Removes silent members, once another has acknowledged: at once a member whose connection is gone, others half a
-- second later. If no member reported for a while, Redis was away: then the time starts again.
local function put_out(c, doc, silence)
  local replicas, acked, under_way = c.P .. 'replicas:' .. doc, c.P .. 'acked:' .. doc, c.P .. 'prepare:' .. doc
  local function gone(other) return redis.call('PUBLISH', c.P .. 'member:' .. doc .. ':' .. other, 'report') == 0 end
  local out, made = {}, redis.call('HMGET', under_way, 'begun', 'first', 'heard')
  if not made[1] or not versions.settled(c, doc) then return out end
  if redis.call('EXISTS', c.P .. 'grace:' .. doc) == 1 then return out end
  redis.call('HSET', under_way, 'heard', c.now_text)
  if c.now > (made[3] or made[1]) + 3000 then
    redis.call('HSET', under_way, 'begun', c.now_text)
    return out
  end
  local late = made[2] and c.now >= math.max(made[1] + silence, made[2] + 500)
  for _, other in ipairs(made[2] and redis.call('SMEMBERS', replicas) or {}) do
    if redis.call('HEXISTS', acked, other) == 0 and (late or gone(other)) then
      versions.put_out(c, doc, other, late and 'it was silent' or 'it was gone')
      out[#out + 1] = other
    end
  end
  versions.commit(c, doc)
  return out
end

-- True if Redis may restore what a member has prepared: it follows the committed version, so nothing committed is
-- missing in it.
local function is_next(c, doc, upon, upon_sha, prepared)
  local at, at_sha = versions.pointer(c, doc)
  return upon == at and (at == '0' or upon_sha == at_sha) and tonumber(prepared) > tonumber(at)
end

-- What a member has to do, by what lies on its disk.
local function verdict(c, doc, version, sha, prepared, prepared_sha)
  local at, at_sha = versions.pointer(c, doc)
  if at_sha == '-' and at == version and at ~= '0' then -- committed while the document had no members
    versions.point(c, doc, version, sha)
    at_sha = sha
  end
  local next = redis.call('HGET', c.P .. 'prepare:' .. doc, 'version') or ''
  if tonumber(version) > tonumber(at) then return 'ahead' end
  if prepared ~= next and is_next(c, doc, version, sha, prepared) then return 'ahead' end
  if at == prepared and at_sha == prepared_sha then return 'commit' end
  if at ~= version or (at ~= '0' and at_sha ~= sha) then return 'behind' end
  return next ~= '' and next ~= prepared and 'prepare' or 'kept'
end

step.define('document_report', {'allow-oom'}, function(c, doc, member, version, sha, prepared, prepared_sha, silence)
  local under_way = c.P .. 'prepare:' .. doc
  versions.prepare(c, doc)
  local what = verdict(c, doc, version, sha, prepared, prepared_sha)
  if what == 'kept' then
    versions.let_in(c, doc, member)
    if prepared ~= '0' and redis.call('EXISTS', under_way) == 1 then
      redis.call('HSET', c.P .. 'acked:' .. doc, member, prepared_sha)
      redis.call('HSETNX', under_way, 'first', c.now_text)
      versions.commit(c, doc)
      what = verdict(c, doc, version, sha, prepared, prepared_sha)
    end
  end
  local out = put_out(c, doc, silence)
  local at, at_sha = versions.pointer(c, doc)
  local next, updates = unpack(redis.call('HMGET', under_way, 'version', 'updates'))
  return {what, at, at_sha, next or '', what == 'prepare' and updates or '', out}
end)

step.define('document_leave', {'allow-oom'}, function(c, doc, member, why)
  local was = versions.put_out(c, doc, member, why)
  versions.commit(c, doc)
  return was
end)

-- Has authors that wait ask again: the restored version may hold their updates already.
local function ask_again(c, doc)
  local function wake_author(update)
    redis.call('DEL', c.P .. 'update:' .. update.id)
    versions.wake(c, update.id, 'asked')
  end
  local under_way = redis.call('HGET', c.P .. 'prepare:' .. doc, 'updates')
  for _, update in ipairs(cjson.decode(under_way or '[]')) do wake_author(update) end
  for _, text in ipairs(redis.call('LRANGE', c.P .. 'asked:' .. doc, 0, -1)) do wake_author(cjson.decode(text)) end
end

step.define('document_restore', {'allow-oom'}, function(c, doc, member, version, sha, upon, upon_sha, args, from)
  local knows_more = tonumber(upon) > tonumber((versions.pointer(c, doc)))
  if not knows_more and not is_next(c, doc, upon, upon_sha, version) then return 0 end
  local before, document = {}, c.P .. 'document:' .. doc
  local had = redis.call('HGETALL', document)
  for i = 1, #had, 2 do before[had[i]] = had[i + 1] end
  redis.call('DEL', document)
  for i = from, #args, 2 do
    redis.call('HSET', document, args[i], args[i + 1])
    if before[args[i]] ~= args[i + 1] then redis.call('HSET', c.P .. 'behind:' .. doc, args[i], version) end
  end
  ask_again(c, doc)
  for _, other in ipairs(redis.call('SMEMBERS', c.P .. 'replicas:' .. doc)) do versions.put_out(c, doc, other, '') end
  redis.call('DEL', c.P .. 'prepare:' .. doc, c.P .. 'acked:' .. doc, c.P .. 'asked:' .. doc)
  versions.point(c, doc, version, sha)
  versions.let_in(c, doc, member)
  if versions.settled(c, doc) then versions.grant_grace(c, doc) end
  if tonumber(redis.call('GET', c.P .. 'fence') or 0) < tonumber(version) then
    redis.call('SET', c.P .. 'fence', version)
  end
  redis.call('PUBLISH', c.P .. 'replica:' .. doc, 'commit')
  return 1
end)

step.define('document_followed', {'allow-oom'}, function(c, doc, entry, version)
  local behind = c.P .. 'behind:' .. doc
  if redis.call('HGET', behind, entry) ~= version then return 0 end
  return redis.call('HDEL', behind, entry)
end)

step.define('document_note', {'allow-oom'}, function(c, doc, name, before, after)
  local stored = c.P .. 'stored:' .. doc
  local has = redis.call('HGET', stored, name) or ''
  if has == after then return 1 end
  if has ~= before then return 0 end
  if after == '' then redis.call('HDEL', stored, name) else redis.call('HSET', stored, name, after) end
  return 1
end)
