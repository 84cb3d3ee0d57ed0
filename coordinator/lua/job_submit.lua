-- job_submit: write a job, put it into its lines, admit it when it stands in front.
-- KEYS prefix
-- ARGV id keys_text when_busy priority not_before delay fields…
--   keys_text: joined by newlines; when_busy: queue | skip | defer; not_before: ms since the epoch, 0 = now
--   fields: further names and values of the record (class task spec limits melt unite expires token ttl)
-- returns {outcome, position, id, fence or '', rung}; outcome: started queued skipped coalesced duplicate
-- include lapsed
-- include unite
local id, keys_text, when_busy, priority, not_before, delay = unpack(ARGV, 1, 6)
local name, keys = P .. 'job:' .. id, keys_of(keys_text)
local fields = {}
for i = 7, #ARGV, 2 do fields[ARGV[i]] = ARGV[i + 1] end

local function answer(outcome, of, fence)
  local place = redis.call('ZRANK', P .. 'line:' .. keys[1], of)
  return {outcome, place or -1, of, fence or '', rung}
end
if redis.call('EXISTS', name) == 1 then
  return answer('duplicate', redis.call('HGET', name, 'alias') or id, redis.call('HGET', name, 'fence'))
end
if fields.token then end_lapsed(keys[1]) end
local busy = false
for _, key in ipairs(when_busy == 'queue' and {} or keys) do
  busy = busy or redis.call('EXISTS', P .. 'line:' .. key) == 1
end
if busy and when_busy == 'skip' then
  return answer('skipped', holder_of(keys[1]) or id)
end
local melt = fields.melt and P .. 'melt:' .. fields.melt .. ':' .. keys[1]
local other = busy and melt and redis.call('GET', melt)
if other then return answer('coalesced', melt_into(other, id, fields.unite)) end

if fields.class then create(fields.class) end
if melt then redis.call('SET', melt, id) end
if fields.expires then redis.call('ZADD', P .. 'expiry', fields.expires, id) end
local score = string.format('%.0f', redis.call('INCR', P .. 'sequence') - priority * 17592186044416)
local function write(state)
  redis.call('HSET', name, 'state', state, 'keys', keys_text, 'submitted', now, unpack(ARGV, 7))
end
if tonumber(not_before) > now then
  write('scheduled')
  into(id, 'scheduled')
  redis.call('HSET', name, 'score', score)
  redis.call('ZADD', P .. 'due', not_before, id)
  return {'queued', -1, id, '', rung}
end
if not enter(id, keys, score) then
  write('waiting')
  return answer('queued', id)
end
if fields.class then
  write('ready')
  ready(id, fields.class, fields.task)
  ring_readied(tonumber(delay))
  return {'started', 0, id, '', rung}
end
local fence = grant(id, keys, fields.token, tonumber(fields.ttl))
write(fence and 'running' or 'waiting')
if fence then redis.call('HSET', name, 'fence', fence, 'attempt', 1, 'taken', now, 'started', now) end
return {'started', 0, id, fence or '', rung}
