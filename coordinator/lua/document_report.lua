-- document_report: a member says what lies on its disk, and is told what to do. Whoever has what is committed and what
-- is under way is let into the replica set. Who kept silent while others acknowledged, or is gone, is put out.
-- KEYS prefix
-- ARGV doc member version sha prepared prepared_sha silence
--   version, prepared: what it knows as committed, and a later one it has prepared; 0 = none; silence: ms
-- returns {what, pointer's version, its sha, version under way or '', updates or '', {members put out}}
--   what: kept | commit (what it prepared is committed) | prepare (that first) | behind (fetch it) | ahead (Redis lost its
--   end: restore)
-- include commit
local doc, member, version, sha, prepared, prepared_sha, silence = unpack(ARGV)
local replicas, acked, under_way = P .. 'replicas:' .. doc, P .. 'acked:' .. doc, P .. 'prepare:' .. doc

-- Nobody before somebody has acknowledged: at once whose connection is gone, others half a second later. Where nobody
-- reported for a while Redis was away, and all were silent: then it begins anew.
local function put_out()
  local function gone(other) return redis.call('PUBLISH', P .. 'member:' .. doc .. ':' .. other, 'report') == 0 end
  local out, made = {}, redis.call('HMGET', under_way, 'begun', 'first', 'heard')
  if not made[1] or not settled(doc) or redis.call('EXISTS', P .. 'grace:' .. doc) == 1 then return out end
  redis.call('HSET', under_way, 'heard', now_text)
  if now > (made[3] or made[1]) + 3000 then redis.call('HSET', under_way, 'begun', now_text) return out end
  local late = made[2] and now >= math.max(made[1] + silence, made[2] + 500)
  for _, other in ipairs(made[2] and redis.call('HKEYS', replicas) or {}) do
    if redis.call('HEXISTS', acked, other) == 0 and (late or gone(other)) then
      redis.call('HDEL', replicas, other)
      out[#out + 1] = other
    end
  end
  commit(doc)
  return out
end

local function verdict()
  local at, at_sha = pointer_of(doc)
  if at_sha == '-' and at == version and at ~= '0' then -- committed while nobody kept it
    redis.call('SET', P .. 'pointer:' .. doc, version .. ' ' .. sha)
    at_sha = sha
  end
  local next = redis.call('HGET', under_way, 'version') or ''
  if tonumber(version) > tonumber(at) then return 'ahead' end
  if tonumber(prepared) > tonumber(at) and prepared ~= next then return 'ahead' end
  if at == prepared and at_sha == prepared_sha then return 'commit' end
  if at ~= version or (at ~= '0' and at_sha ~= sha) then return 'behind' end
  return next ~= '' and next ~= prepared and 'prepare' or 'kept'
end

prepare(doc)
local what = verdict()
if what == 'kept' then
  redis.call('HSETNX', replicas, member, now_text)
  if prepared ~= '0' and redis.call('EXISTS', under_way) == 1 then
    redis.call('HSET', acked, member, prepared_sha)
    redis.call('HSETNX', under_way, 'first', now_text)
    commit(doc)
    what = verdict()
  end
end
local out = put_out()
local at, at_sha = pointer_of(doc)
local made = redis.call('HMGET', under_way, 'version', 'updates')
return {what, at, at_sha, made[1] or '', what == 'prepare' and made[2] or '', out}
