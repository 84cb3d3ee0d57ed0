-- job_submit: write a job, put it into its lines, admit it when it stands in front.
-- KEYS prefix
-- ARGV id keys_text when_busy priority not_before delay room fields…
--   keys_text: joined by newlines; when_busy: queue | skip | defer; not_before: ms since the epoch, 0 = now
--   room: so many may not wait in any of its lines yet; '' = any number; fields: names and values of the record
-- returns {outcome, position, id, fence or '', rung}; outcome: started queued skipped coalesced duplicate, or full (nothing
--   was written; position = how many wait; id = the key)
-- include class
-- include enter
-- include standing
local id, keys_text, when_busy, priority, not_before, delay, room = unpack(ARGV, 1, 7)
local name, keys, fields = P .. 'job:' .. id, keys_of(keys_text), {}
for i = 8, #ARGV, 2 do fields[ARGV[i]] = ARGV[i + 1] end
local function answer(outcome, of, fence) return {outcome, place_of(of, keys[1]), of, fence or '', rung} end
if redis.call('EXISTS', name) == 1 then
  return answer('duplicate', redis.call('HGET', name, 'alias') or id, redis.call('HGET', name, 'fence'))
end
if fields.token then -- what most submits do not need is put together only where they do
  -- include lapsed
  end_lapsed(keys[1])
end
local melt = fields.melt and P .. 'melt:' .. fields.melt .. ':' .. keys[1]
if when_busy ~= 'queue' or room ~= '' then
  -- include busy
  local outcome, of, waiting = turned_away(id, keys, when_busy, melt, fields.unite, tonumber(room))
  if outcome == 'full' then return {outcome, waiting, of, '', rung} end
  if outcome then return answer(outcome, of) end
end

if fields.class then create(fields.class) end
if melt then redis.call('SET', melt, id) end
if fields.expires then redis.call('ZADD', P .. 'expiry', fields.expires, id) end
local score = new_score(priority, 'back')
local function write(state)
  redis.call('HSET', name, 'state', state, 'keys', keys_text, 'submitted', now_text, unpack(ARGV, 8))
end
if tonumber(not_before) > now then
  -- include later
  write('scheduled')
  start_later(id, score, not_before)
  return {'queued', -1, id, '', rung}
end
local first, marked = enter(id, keys, score)
if not first and not marked then
  write('waiting')
  return answer('queued', id)
end
-- include ready
if first and fields.class then
  write('ready')
  put(id, fields.class, group_of({keys = keys_text, group = fields.group}))
  readied[1] = fields
else
  -- include lane
  write('waiting')
  admit_one(id, marked)
end
ring_readied(tonumber(delay))
local now_is = redis.call('HMGET', name, 'state', 'fence')
return now_is[1] == 'waiting' and answer('queued', id) or {'started', 0, id, now_is[2] or '', rung}
