-- Submitting: writes a job, or a lock in plain code, and puts it into its lines.
local submit = {}

-- The keys that must not be busy: all, or those whose indexes `when_busy` names.
local function skip_keys(keys, when_busy)
  if when_busy == 'skip' then return keys end
  local chosen = {}
  for place in when_busy:gmatch('%d+') do chosen[#chosen + 1] = keys[tonumber(place)] end
  return chosen
end

-- The first of these lines in which a new job would wait: one that is not empty, or is paused.
local function busy_line(c, keys)
  for _, key in ipairs(keys) do
    if redis.call('EXISTS', c.P .. 'line:' .. key) == 1 then return key end
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

-- The first line, or queue of a quota, in which at least `room` jobs wait, and their number.
local function full_line(c, keys, uses, room)
  for _, key in ipairs(keys) do
    local count = waiting(c, key)
    if count >= room then return key, count end
  end
  for _, use in ipairs(quotas.parse(uses or '')) do
    local count = queues.count(c, use.name)
    if count >= room then return use.name, count end
  end
end

-- Decides whether a job may be queued: nil = yes. Else the outcome and the job that causes it; or `full`, the line or
-- quota, and the number of jobs waiting there. equal: the key that names the job to coalesce into.
local function refusal(c, id, keys, when_busy, equal, fields, room)
  local busy = busy_line(c, skip_keys(keys, when_busy))
  if busy then return 'skipped', line.holder(c, busy) or id end
  local other = equal and redis.call('GET', equal)
  local into = other and coalesce.join(c, other, id)
  if into then return 'coalesced', into end
  if not room then return nil end
  local full, count = full_line(c, keys, fields.uses, room)
  if full then return 'full', full, count end
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

-- Builds the reply: the outcome, the place in the first line, else in the queue of a quota, the id of the job. fence?:
-- '' where it has none.
local function answer(c, verdict, key, id, fence)
  local job = record.fill({name = c.P .. 'job:' .. id}, 'lack', 'uses', 'task', 'class')
  local rank = job.lack and quotas.rank(c, job.lack, id, job)
  local place = rank or key and line.place(c, id, key) or 0
  return {verdict, place, id, fence or ''}
end

-- The outcome for a job in front: started, unless no living node can run it. A lock needs no node.
local function in_front(c, class, task)
  return (not class or classes.can_run(c, class, task)) and 'started' or 'queued'
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

-- Puts a job into its lines that waits for nothing else. score, sequence: its place.
local function stand(c, id, keys_text, fields, score, sequence, list, from)
  local name, keys = c.P .. 'job:' .. id, record.keys_of(keys_text)
  local first, overtaken = admit.enter(c, id, keys, score)
  if overtaken then fields.checked = nil end -- its quotas are read anew: units may have come back
  local checks, lacks, wait = first and fields.class and fields.uses, nil, nil
  if checks then lacks, wait = quotas.lacking(c, id, fields, true) end
  local starts = first and fields.class and not lacks
  write(c, id, keys_text, starts and 'ready' or 'waiting', list, from)
  if lacks then quotas.queue(c, id, fields, lacks, wait) end
  if starts then
    fields.keys = keys_text
    if checks then quotas.offer(c, id, fields) end
    ready.put(c, id, fields, sequence)
    base.add(c, 'readied', fields)
    return {in_front(c, fields.class, fields.task), 0, id, ''}
  end
  if not first or lacks then return answer(c, 'queued', keys[1], id) end
  admit.one(c, id)
  local admitted = redis.call('HMGET', name, 'state', 'fence')
  if admitted[1] == 'waiting' then return answer(c, 'queued', keys[1], id) end
  return {in_front(c, fields.class, fields.task), 0, id, admitted[2] or ''}
end

-- Adds a call to the open collector of its lane. Returns the reply to the submit; nil: the call begins a collector.
local function gather(c, id, keys_text, key, fields, terms, list, from)
  local verdict, of, about = collect.join(c, id, keys_text, key, fields, terms)
  if verdict == 'other' then return {verdict, 0, of, about} end
  if not verdict then return collect.begin(terms, fields, list) end
  if fields.expected then coalesce.attach_caller(c, of, id, verdict, fields, list, from) end
  return about and {verdict, -1, of, ''} or answer(c, verdict, key, of)
end

-- Lets a new job collect until its time. False: it goes into line at once.
local function collects(c, id, keys_text, terms, score, list, from)
  if terms.idle == 0 or terms.most == 1 then return false end
  write(c, id, keys_text, 'collecting', list, from)
  collect.wait(c, id, score, terms)
  return true
end

local function enqueue(c, id, keys_text, fields, when_busy, priority, not_before, room, list, from)
  local name, keys = c.P .. 'job:' .. id, record.keys_of(keys_text)
  local revoked = redis.call('EXISTS', name, c.P .. 'revoked:' .. id) > 0
  if revoked and redis.call('EXISTS', name) == 1 then
    local known = redis.call('HMGET', name, 'alias', 'fence')
    return answer(c, 'duplicate', keys[1], known[1] or id, known[2])
  end
  if revoked and fields.class then return end_at_once(c, id, keys_text, fields, priority, list, from) end
  local causes_of, unknown
  if fields.after then
    causes_of, unknown = dependants.look(c, fields, list, from)
    if unknown then return {'unknown', 0, unknown, ''} end
  end
  if fields.uses then
    fields.name, fields.keys, fields.light = name, keys_text, fields.seldom ~= '1'
    local verdict, q, units = quotas.refusal(c, fields)
    if verdict then return {verdict, units, q, ''} end
  end
  if fields.token then
    c.asking = id
    if keys[1] then settle.end_lapsed(c, keys[1]) end
  end
  local equal = fields.equal and c.P .. 'equal:' .. fields.equal .. ':' .. keys[1]
  local terms = collect.terms(when_busy)
  if terms then
    local reply = gather(c, id, keys_text, keys[1], fields, terms, list, from)
    if reply then return reply end
    when_busy = 'queue'
  end
  if when_busy ~= 'queue' or room ~= '' then
    local verdict, of, count = refusal(c, id, keys, when_busy, not terms and equal, fields, tonumber(room))
    if verdict == 'full' then return {verdict, count, of, ''} end
    if verdict and fields.expected then of = coalesce.attach_caller(c, of, id, verdict, fields, list, from) end
    if verdict == 'skipped' then return {verdict, line.place(c, line.holder(c, keys[1]) or id, keys[1]), of, ''} end
    if verdict then return answer(c, verdict, keys[1], of) end
    if when_busy == 'replace' then
      cancel.replace(c, keys, id)
      fields.checked = nil -- its quotas are read anew: units may have come back
    end
  end

  if fields.class then submit.create(c, fields) end
  if equal then coalesce.open(id, equal) end
  if fields.expires then states.must_start(c, id, fields.expires) end
  local score, sequence = line.new_score(c, priority, 'back')
  local start = not_before ~= '0' and base.instant(c, not_before)
  if causes_of then
    write(c, id, keys_text, 'blocked', list, from)
    if dependants.begin(c, id, causes_of, score, start) then return {'queued', -1, id, ''} end
  end
  if terms and collects(c, id, keys_text, terms, score, list, from) then return {'queued', -1, id, ''} end
  if start and not base.is_past(c, start) then
    write(c, id, keys_text, 'scheduled', list, from)
    states.schedule(c, id, score, start)
    return {'queued', -1, id, ''}
  end
  return stand(c, id, keys_text, fields, score, sequence, list, from)
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
  reply = reply or enqueue(c, id, lane, fields, ...)
  reply[5], reply[6] = grabs.reply(before.state, before), before.job or ''
  return reply
end

-- keys_text: keys joined by newlines; list: names and values of the record's fields, from index `from`. Returns as
-- job_submit.
function submit.job(c, id, keys_text, when_busy, priority, not_before, room, list, from)
  local fields = submit.by_name(c, list, from)
  return (fields.grab and grab or enqueue)(c, id, keys_text, fields, when_busy, priority, not_before, room, list, from)
end

-- Submits with the arguments of job_submit, which begin at index `from` of another step's.
function submit.asked(c, args, from)
  local id, keys_text, when_busy, priority, not_before, room = unpack(args, from, from + 5)
  return submit.job(c, id, keys_text, when_busy, priority, not_before, room, args, from + 6)
end

return submit
