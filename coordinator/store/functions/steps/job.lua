-- Jobs: clients and operators submit, cancel, retry, move and count them; nodes send the results of ended jobs.

-- job_submit: writes a job, puts it into its lines, and admits it if it is in front.
-- args id keys when_busy priority not_before room fields…
--   keys: joined by newlines; when_busy: queue | skip | defer | replace, or `skip 1 3`: only these keys must not be
--   busy; not_before: ms since the epoch, '+<ms>' = this long after the step, 0 = now
--   room: refused where this many wait in one of its lines; '' = no bound; fields: names and values of the record
-- returns {outcome, position, id, fence or ''}; outcome: started queued skipped coalesced, or full (nothing was
--   written; position = how many wait; id = the key); asked again: duplicate, with its position, id and
--   fence; '' once it has succeeded. With the field `grab` also the instance as in grab_look, and the id of its
--   winner; outcome lost: another works on it or has completed it, and nothing was written
step.define('job_submit', {}, function(c, args)
  local id, keys, when_busy, priority, not_before, room = unpack(args, 1, 6)
  return submit.job(c, id, keys, when_busy, priority, not_before, room, args, 7)
end)

-- job_cancel: ends a job that is not over. A running job is marked; its node's warden stops its process first.
-- args id act unbegun
--   unbegun: 1 = only a job that has not begun, or waits for its retry
-- returns the state after the call, '' = no such job; asked again: the same
step.define('job_cancel', {'allow-oom'}, function(c, args)
  local id, act, unbegun = unpack(args)
  id, act = record.resolve(c, id), audit.act(c, act)
  local state, before = cancel.job(c, id, act, unbegun == '1')
  if before then audit.note(c, act, 'cancel', 'job', id, before, state == 'running' and 'stopping' or state) end
  return state
end)

-- jobs_named: finds out which ids belong to jobs, or to calls that coalesced or were skipped. The others may belong to
-- future jobs, such as later steps of a chain: such a job ends as cancelled when it is submitted.
-- args ttl ids…
--   ttl: ms for which the others are remembered
-- returns the ids that are known; asked again: the same
step.define('jobs_named', {'allow-oom'}, function(c, args)
  local known = {}
  for i = 2, #args do
    if redis.call('EXISTS', c.P .. 'job:' .. args[i]) == 1 then
      known[#known + 1] = args[i]
    else
      redis.call('SET', c.P .. 'revoked:' .. args[i], 1, 'PX', args[1])
    end
  end
  return known
end)

-- Gives the job all its attempts and losses again. A job that was rolled back begins again with its first step.
local function begin_anew(c, id, job, act)
  local name = job.name
  local was = record.texts(name, {'rollback', 'home', 'spec'})
  if was[1] == 'done' and was[2] then
    local limit, task, class = string.match(was[2], '^(%d+)\n([^\n]*)\n(.*)$')
    local first = cjson.decode(was[3]).first or 0
    job.limits = record.with_time(job.limits, limit)
    redis.call('HSET', name, 'step', first, 'limits', job.limits, 'task', task, 'class', class)
    redis.call('HDEL', name, 'value', 'values', 'instead')
    job.task, job.class = task, class
  end
  history.note(c, job, 'retried', act)
  record.note(c, id, 'forgiven', job.attempt or 0, 'losses', 0, 'phase', '', 'retried', act)
  redis.call('HDEL', name, 'stop', 'ends', 'rollback', 'fault', 'conflicts')
end

-- Grabs the instance again for a job that ended badly. False: another works on it or has completed it.
local function regrab(c, id, job)
  local grab = held.grab(c, job.keys)
  if grab.state == 'running' or grab.state == 'complete' then return false end
  grabs.begin_job(c, job.keys, grab, job.grab, id)
  return true
end

-- Puts a job that ended badly into its lines again, and keeps its record. False: another has its instance.
local function revive(c, id, job, to, act)
  if job.grab and not regrab(c, id, job) then return false end
  local name = job.name
  retention.undo(c, id, job)
  if job.tell then redis.call('ZREM', c.P .. 'unsent:' .. record.app_of(c, job), id) end
  history.count(c, job.state, job.task, '-1')
  history.tally(c, 'revived\n' .. job.state .. '\n' .. job.task)
  local error, ended = unpack(redis.call('HMGET', name, 'error', 'ended'))
  history.note(c, job, job.state, error, nil, ended)
  begin_anew(c, id, job, act)
  redis.call('HDEL', name, 'readied', 'taken', 'ended', 'token', 'last', 'condemned', 'expires', 'score', 'offers',
    'once_sent')
  local score = line.new_score(c, redis.call('HGET', name, 'priority') or 0, to)
  admit.join(c, id, record.keys_of(job.keys), score)
  return true
end

-- job_retry: lets a held job go on, a retrying job go on at once, and a job that ended badly run again.
-- args id act to
--   to: for an ended job: back | front of its priority
-- returns the state after the call, '' = no such job; unchanged if another has its instance; asked again:
--   the state that it has then
step.define('job_retry', {'allow-oom'}, function(c, args)
  local id, act, to = unpack(args)
  id, act = record.resolve(c, id), audit.act(c, act)
  local job = record.read(c, id)
  if not job then return '' end
  local kept, acted = audit.kept(act), true
  if job.state == 'retrying' then
    redis.call('ZREM', c.P .. 'due', id)
    history.note(c, job, 'retried', kept)
    settle.put_back(c, id, job, 'retried', kept)
  elseif job.state == 'held' then
    begin_anew(c, id, job, kept)
    redis.call('ZADD', c.P .. 'expiry', c.now + record.max_lifetime(job), id)
    redis.call('HSET', job.name, 'taken', c.now)
    settle.put_back(c, id, job)
  elseif states.TERMINAL[job.state] and job.state ~= 'succeeded' and job.class then
    acted = revive(c, id, job, to, kept)
  else
    acted = false
  end
  local state = redis.call('HGET', job.name, 'state')
  if acted then audit.note(c, act, 'retry', 'job', id, job.state, state) end
  return state
end)

-- job_move: gives a job that was not started a new pair (priority, sequence), in all its lines at once.
-- args id priority to act asked
--   priority: '' = unchanged; to: back | front of its priority; asked: the caller's token, '' = none
-- returns {state or '', moved}; '' = no such job; moved: 1, or 0 if it was started or is in no line; asked
--   again with the token of the job's last move: it is moved once
step.define('job_move', {'allow-oom'}, function(c, args)
  local id, priority, to, act, asked = unpack(args)
  id, act = record.resolve(c, id), audit.act(c, act)
  local job = record.read(c, id)
  if not job then return {'', 0} end
  local name = job.name
  if asked ~= '' and redis.call('HGET', name, 'move') == asked then return {job.state, 1} end
  if job.state ~= 'waiting' and job.state ~= 'scheduled' then return {job.state, 0} end
  local before = redis.call('HGET', name, 'priority') or '0'
  if priority == '' then priority = before end
  local score = line.new_score(c, priority, to)
  local kept = audit.kept(act)
  redis.call('HSET', name, 'priority', priority, 'moved', kept, 'move', asked)
  history.note(c, job, 'moved', kept)
  audit.note(c, act, 'move', 'job', id, before, priority .. ' ' .. to)
  if job.state == 'scheduled' then
    redis.call('HSET', name, 'score', score)
    return {job.state, 1}
  end
  local keys = record.keys_of(job.keys)
  redis.call('HDEL', name, 'score')
  line.enter(c, id, keys, score)
  for _, key in ipairs(keys) do admit.lane(c, key) end
  return {redis.call('HGET', name, 'state'), 1}
end)

-- job_await: notes that the code of a running job, or under locks, waits for another job, or no longer does.
-- args other holders…
--   other: '' = none; holders: id and token, in turns, of the job and the locks that the code holds meanwhile
-- returns '', or the ring if it would wait for itself: then nothing is noted; asked again: the same
step.define('job_await', {'allow-oom'}, function(c, args)
  local other = record.resolve(c, args[1])
  local ring, left, _
  for i = 2, #args, 2 do rings.await(c, args[i], args[i + 1], other) end
  for i = 2, other == '' and 0 or #args, 2 do
    if not ring then ring, _, left = rings.find(c, args[i], nil, left) end
  end
  for i = 2, ring and #args or 0, 2 do rings.await(c, args[i], args[i + 1], '') end
  return ring or ''
end)

-- counts_read: counts the jobs in each state and reads the totals, at one moment.
-- returns names and numbers in turns; created = waiting and the other states and the outcomes added up
step.define('counts_read', {'no-writes'}, function(c)
  local reply = {}
  for name, number in pairs(history.counts(c)) do
    reply[#reply + 1] = name
    reply[#reply + 1] = number
  end
  return reply
end)

-- ready_read: counts the ready jobs of each task and class.
-- args after most
--   after: the last place of the reply before, '' = from the beginning; most: tasks and classes at most
-- returns {task, class, number, place} for each
step.define('ready_read', {'no-writes'}, function(c, args)
  local after, most = unpack(args)
  return ready.kinds(c, after, tonumber(most))
end)

-- jobs_read: reads fields of records.
-- args fields ids…
--   fields: joined by newlines
-- returns a list for each id, the values of the fields; empty: it is no record
step.define('jobs_read', {'no-writes'}, function(c, args)
  local found, fields = {}, record.keys_of(args[1])
  for i = 2, #args do
    found[#found + 1] = record.texts(c.P .. 'job:' .. args[i], fields) or {}
  end
  return found
end)

local function may_fit(c, id, wanted)
  local values = record.texts(c.P .. 'job:' .. id, wanted.names)
  if not values or (wanted.states and not wanted.states[values[1]]) then return false end
  for _, needle in ipairs(wanted.needles) do
    local there = false
    for _, place in ipairs(needle[1]) do
      local value = values[place + 1]
      there = there or value and string.find(string.lower(value), needle[2], 1, true)
    end
    if not there then return false end
  end
  return true
end

-- jobs_likely: finds the records that may fit a search.
-- args wanted ids…
--   wanted: JSON {names, needles, states?}. names: of fields, `state` first; needles: {places in names, text} for each
--   text of which one of these fields must have a part, in small letters; states: those that fit, a table
-- returns the places of these records among the ids, from 0
step.define('jobs_likely', {'no-writes'}, function(c, args)
  local found, wanted = {}, cjson.decode(args[1])
  for i = 2, #args do
    if may_fit(c, args[i], wanted) then found[#found + 1] = i - 2 end
  end
  return found
end)

-- lines_likely: finds the jobs of lines, one line after the other, whose records may fit a search.
-- args wanted most score id keys…
--   wanted: as for jobs_likely; '' = all; most: entries that it reads; score, id: the first line is read behind this
--   entry; '-inf' and '' = from its beginning
-- returns how many lines it read to their ends, at how many jobs it looked, the score and id of the last entry where it
--   stopped within a line, and {key, {{id, score} of each that may fit}} for each line that has any
step.define('lines_likely', {'no-writes'}, function(c, args)
  local wanted, left = args[1] ~= '' and cjson.decode(args[1]), tonumber(args[2])
  local found, read, looked, score, id = {}, 0, 0, args[3], args[4]
  for i = 5, #args do
    local name, likely, from = c.P .. 'line:' .. args[i], {}, 0
    if i == 5 then
      local at = redis.call('ZSCORE', name, id)
      local stays = at and tonumber(at) == tonumber(score)
      from = stays and redis.call('ZRANK', name, id) + 1 or redis.call('ZCOUNT', name, '-inf', '(' .. score)
    end
    local part = redis.call('ZRANGE', name, from, from + left - 1, 'WITHSCORES')
    for j = 1, #part, 2 do
      if not line.is_mark(part[j]) then
        looked = looked + 1
        if not wanted or may_fit(c, part[j], wanted) then likely[#likely + 1] = {part[j], part[j + 1]} end
      end
    end
    if likely[1] then found[#found + 1] = {args[i], likely} end
    left = left - #part / 2
    if left == 0 then return {read, looked, {part[#part], part[#part - 1]}, unpack(found)} end
    read = read + 1
  end
  return {read, looked, {}, unpack(found)}
end)

-- notices_take: takes ended jobs of an app whose results and links nobody has sent yet.
-- args app most
--   most: how many at most
-- returns {id, tries} for each; tries: how often it was offered; asked again: each is offered again after 30 s, then
--   after twice as long, up to 10 min, until notices_sent; its record is kept for an hour longer
step.define('notices_take', {'allow-oom'}, function(c, args)
  local app, most = unpack(args)
  local unsent, found = c.P .. 'unsent:' .. app, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', unsent, '-inf', c.now, 'LIMIT', 0, most)) do
    local name = c.P .. 'job:' .. id
    if redis.call('EXISTS', name) == 1 then
      local tries = (tonumber(redis.call('HGET', name, 'offers')) or 0) + 1
      local pause = math.min(30000 * 2 ^ (tries - 1), 600000)
      redis.call('HSET', name, 'offers', tries)
      redis.call('PEXPIRE', name, pause + 3600000, 'GT')
      redis.call('ZADD', unsent, c.now + pause, id)
      found[#found + 1] = {id, tries}
    else
      redis.call('ZREM', unsent, id)
    end
  end
  return found
end)

-- notices_sent: notes that results and links of these jobs were sent.
-- args app ids…
-- returns how many were owed; asked again: 0
step.define('notices_sent', {'allow-oom'}, function(c, args)
  return retention.sent(c, args[1], args, 2)
end)
