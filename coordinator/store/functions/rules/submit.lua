-- Submitting: writes a job, or a lock in plain code, and puts it into its lines.
local submit = {}

-- The keys that must not be busy: all, or those whose indexes `when_busy` names.
local function skip_keys(keys, when_busy)
  if when_busy == 'skip' then return keys end
  local chosen = {}
  for place in when_busy:gmatch('%d+') do chosen[#chosen + 1] = keys[tonumber(place)] end
  return chosen
end

-- The first of these lines in which a new job of this kind would wait at the end.
local function busy_line(c, keys, exclusive)
  for _, key in ipairs(keys) do
    local marks = line.marks(c, key)
    local length, limit = redis.call('ZCARD', c.P .. 'line:' .. key) - marks, marks > 0 and line.limit(c, key) or 1
    if length >= limit or marks > 0 and redis.call('ZSCORE', c.P .. 'line:' .. key, line.PAUSED) then return key end
    if length > 0 and (exclusive or line.first_alone(c, key, limit)) then return key end
  end
end

-- The number of jobs in a line that were not started.
local function waiting(c, key)
  local marks, members = line.marks(c, key), c.P .. 'line:' .. key
  local started = redis.call('ZCOUNT', members, '-inf', '-inf') - marks
  local head = marks == 0 and started == 0 and redis.call('ZRANGE', members, 0, 0)[1]
  if head and redis.call('HGET', c.P .. 'job:' .. head, 'state') ~= 'waiting' then started = 1 end
  return redis.call('ZCARD', members) - marks - started
end

-- The first line in which at least `room` jobs wait, and their number.
local function full_line(c, keys, room)
  for _, key in ipairs(keys) do
    local count = waiting(c, key)
    if count >= room then return key, count end
  end
end

-- Decides whether a job may be queued: nil = yes. Else the outcome and the job that causes it; or `full`, the line, and
-- the number of jobs waiting there. equal: the key that names the job to coalesce into.
local function turned_away(c, id, keys, when_busy, equal, fields, room)
  local busy = busy_line(c, skip_keys(keys, when_busy), fields.exclusive)
  if busy then return 'skipped', line.holder(c, busy) or id end
  local other = equal and redis.call('GET', equal)
  local into = other and coalesce.join(c, other, id, fields.merge_args)
  if into then return 'coalesced', into end
  local key, count = full_line(c, room and keys or {}, room)
  if key then return 'full', key, count end
end

-- The fields by name. Spans in the list become instants.
function submit.by_name(c, list, from)
  local fields = {}
  for i = from, #list, 2 do
    if list[i] == 'expires' then list[i + 1] = base.instant(c, list[i + 1]) end
    fields[list[i]] = list[i + 1]
  end
  return fields
end

-- Builds the reply: the outcome, the place in the first line, the id of the job, its fence or ''.
local function answer(c, verdict, key, id, fence) return {verdict, line.place(c, id, key), id, fence or ''} end

-- The outcome for a job in front: started, unless no living node can run it. A lock needs no node.
local function in_front(c, class, task)
  return (not class or nodes.can_run(c, class, task)) and 'started' or 'queued'
end

local function write(c, id, keys_text, state, list, from)
  redis.call('HSET', c.P .. 'job:' .. id, 'state', state, 'keys', keys_text, 'submitted', c.now_text,
    unpack(record.cut(list, from), from))
end

-- Counts a new job.
function submit.create(c, fields)
  classes.know(c, fields.class)
  history.count(c, 'created', fields.task)
end

-- Ends a job that was revoked before it was submitted as cancelled, and lets its end be sent.
local function end_at_once(c, id, keys_text, fields, priority, list, from)
  submit.create(c, fields)
  write(c, id, keys_text, 'scheduled', list, from)
  states.schedule(c, id, line.new_score(c, priority, 'back'), c.now)
  cancel.job(c, id, {why = 'revoked', by = 'celery'})
  return {'queued', -1, id, ''}
end

local function stand(c, id, keys_text, fields, when_busy, priority, not_before, room, list, from)
  local name, keys = c.P .. 'job:' .. id, record.keys_of(keys_text)
  local revoked = redis.call('EXISTS', name, c.P .. 'revoked:' .. id) > 0
  if revoked and redis.call('EXISTS', name) == 1 then
    local known = redis.call('HMGET', name, 'alias', 'fence')
    return answer(c, 'duplicate', keys[1], known[1] or id, known[2])
  end
  if revoked and fields.class then return end_at_once(c, id, keys_text, fields, priority, list, from) end
  if fields.token then
    c.asking = id
    settle.end_lapsed(c, keys[1])
  end
  local equal = fields.equal and c.P .. 'equal:' .. fields.equal .. ':' .. keys[1]
  if when_busy ~= 'queue' or room ~= '' then
    local verdict, of, count = turned_away(c, id, keys, when_busy, equal, fields, tonumber(room))
    if verdict == 'full' then return {verdict, count, of, ''} end
    if verdict and fields.expected then of = coalesce.stand_for(c, of, id, verdict, fields, list, from) end
    if verdict == 'skipped' then return {verdict, line.place(c, line.holder(c, keys[1]) or id, keys[1]), of, ''} end
    if verdict then return answer(c, verdict, keys[1], of) end
    if when_busy == 'replace' then cancel.replace(c, keys, id) end
  end

  if fields.class then submit.create(c, fields) end
  if equal then coalesce.open(c, id, equal) end
  if fields.expires then states.must_start(c, id, fields.expires) end
  local score, sequence = line.new_score(c, priority, 'back')
  local start = not_before ~= '0' and base.instant(c, not_before)
  if start and not base.is_past(c, start) then
    write(c, id, keys_text, 'scheduled', list, from)
    states.schedule(c, id, score, start)
    return {'queued', -1, id, ''}
  end
  local first, marked = line.enter(c, id, keys, score)
  local starts = first and fields.class
  write(c, id, keys_text, starts and 'ready' or 'waiting', list, from)
  if starts then
    fields.keys = keys_text
    ready.put(c, id, fields, sequence)
    base.add(c, 'readied', fields)
    return {in_front(c, fields.class, fields.task), 0, id, ''}
  end
  if not first and not marked then return answer(c, 'queued', keys[1], id) end
  admit.one(c, id, marked)
  local admitted = redis.call('HMGET', name, 'state', 'fence')
  if admitted[1] == 'waiting' then return answer(c, 'queued', keys[1], id) end
  return {in_front(c, fields.class, fields.task), 0, id, admitted[2] or ''}
end

-- Grabs the instance for a job that was submitted with one, unless another has it.
local function grab(c, id, lane, fields, ...)
  local before, reply = held.grab(c, lane), nil
  if redis.call('EXISTS', c.P .. 'job:' .. id) == 0 then
    if before.state == 'running' or before.state == 'complete' then
      reply = {before.job == id and 'duplicate' or 'lost', -1, before.job, before.fence}
    else
      grabs.begin_job(c, lane, before, fields.grab, id)
    end
  end
  reply = reply or stand(c, id, lane, fields, ...)
  reply[5], reply[6] = grabs.reply(before.state, before), before.job or ''
  return reply
end

-- keys_text: keys joined by newlines; list: names and values of the record's fields, from index `from`. Returns as
-- job_submit.
function submit.job(c, id, keys_text, when_busy, priority, not_before, room, list, from)
  local fields = submit.by_name(c, list, from)
  return (fields.grab and grab or stand)(c, id, keys_text, fields, when_busy, priority, not_before, room, list, from)
end

-- Submits with the arguments of job_submit, which begin at index `from` of another step's.
function submit.asked(c, args, from)
  local id, keys_text, when_busy, priority, not_before, room = unpack(args, from, from + 5)
  return submit.job(c, id, keys_text, when_busy, priority, not_before, room, args, from + 6)
end

return submit
