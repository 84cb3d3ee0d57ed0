-- Jobs: clients and operators submit, cancel, retry, move and count them; nodes send the results of ended jobs.

step.define('job_submit', {}, function(c, job_id, keys, when_busy, priority, not_before, room, args, from)
  return submit.job(c, job_id, keys, when_busy, priority, not_before, room, args, from)
end)

step.define('job_cancel', {'allow-oom'}, function(c, job_id, act, unbegun)
  local id = record.resolve(c, job_id)
  act = audit.act(c, act)
  local state, before = cancel.job(c, id, act, unbegun)
  if before then audit.note(c, act, 'cancel', 'job', id, before, state == 'running' and 'stopping' or state) end
  return state
end)

step.define('jobs_named', {'allow-oom'}, function(c, ttl, args, from)
  local known = {}
  for i = from, #args do
    if redis.call('EXISTS', c.P .. 'job:' .. args[i]) == 1 then
      known[#known + 1] = args[i]
    else
      redis.call('SET', c.P .. 'revoked:' .. args[i], 1, 'PX', ttl)
    end
  end
  return known
end)

step.define('job_retry', {'allow-oom'}, function(c, job_id, act, to)
  local id = record.resolve(c, job_id)
  act = audit.act(c, act)
  local job = record.read(c, id)
  if not job then return '' end
  local kept, acted = audit.kept(act), true
  if job.state == 'retrying' then
    redis.call('ZREM', c.P .. 'due', id)
    history.note(c, job, 'retried', kept)
    settle.put_back(c, id, job, 'retried', kept)
  elseif job.state == 'held' and dependants.holds(job) then
    revive.anew(c, id, job, kept)
    dependants.release(c, id, job)
  elseif job.state == 'held' then
    revive.anew(c, id, job, kept)
    redis.call('ZADD', c.P .. 'expiry', c.now + record.max_lifetime(job), id)
    job.taken = c.now_text
    settle.put_back(c, id, job, 'taken', job.taken)
  elseif states.TERMINAL[job.state] and job.state ~= 'succeeded' and job.class then
    acted = revive.job(c, id, job, to, kept)
  else
    acted = false
  end
  local state = redis.call('HGET', job.name, 'state')
  if acted then audit.note(c, act, 'retry', 'job', id, job.state, state) end
  return state
end)

step.define('job_flush', {'allow-oom'}, function(c, job_id, act)
  local id = record.resolve(c, job_id)
  act = audit.act(c, act)
  local job = record.read(c, id)
  if not job then return '' end
  if job.state ~= 'collecting' then return job.state end
  history.note(c, job, 'flushed', audit.kept(act))
  collect.go(c, id, job)
  local state = redis.call('HGET', job.name, 'state')
  audit.note(c, act, 'flush', 'job', id, job.state, state)
  return state
end)

step.define('job_move', {'allow-oom'}, function(c, job_id, priority, to, act, asked)
  local id = record.resolve(c, job_id)
  act = audit.act(c, act)
  local job = record.read(c, id)
  if not job then return {'', 0} end
  local name = job.name
  if asked ~= '' and redis.call('HGET', name, 'move') == asked then return {job.state, 1} end
  local stands = job.state == 'waiting'
  if not stands and job.state ~= 'scheduled' and job.state ~= 'blocked' then return {job.state, 0} end
  quotas.withdraw(c, id, job)
  local before = redis.call('HGET', name, 'priority') or '0'
  if priority == '' then priority = before end
  local score = line.new_score(c, priority, to)
  local kept = audit.kept(act)
  redis.call('HSET', name, 'priority', priority, 'moved', kept, 'move', asked)
  history.note(c, job, 'moved', kept)
  audit.note(c, act, 'move', 'job', id, before, priority .. ' ' .. to)
  if not stands then
    redis.call('HSET', name, 'score', score)
    return {job.state, 1}
  end
  local keys = record.keys_of(job.keys)
  redis.call('HDEL', name, 'score')
  admit.enter(c, id, keys, score)
  if not keys[1] then admit.one(c, id) end
  for _, key in ipairs(keys) do admit.lane(c, key) end
  return {redis.call('HGET', name, 'state'), 1}
end)

step.define('job_await', {'allow-oom'}, function(c, other, args, from)
  other = record.resolve(c, other)
  local ring, left, _
  for i = from, #args, 2 do rings.await(c, args[i], args[i + 1], other) end
  for i = from, other == '' and 0 or #args, 2 do
    if not ring then ring, _, left = rings.find(c, args[i], nil, left) end
  end
  for i = from, ring and #args or 0, 2 do rings.await(c, args[i], args[i + 1], '') end
  return ring or ''
end)

step.define('counts_read', {'no-writes'}, function(c)
  local reply = {}
  for name, number in pairs(history.counts(c)) do
    reply[#reply + 1] = name
    reply[#reply + 1] = number
  end
  return reply
end)

step.define('ready_read', {'no-writes'}, function(c, after, most)
  return ready.kinds(c, after, tonumber(most))
end)

step.define('jobs_read', {'no-writes'}, function(c, fields, args, from)
  local found, names = {}, record.keys_of(fields)
  for i = from, #args do
    found[#found + 1] = record.texts(c.P .. 'job:' .. args[i], names) or {}
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

step.define('jobs_likely', {'no-writes'}, function(c, wanted, args, from)
  local found, sieve = {}, cjson.decode(wanted)
  for i = from, #args do
    if may_fit(c, args[i], sieve) then found[#found + 1] = i - from end
  end
  return found
end)

step.define('lines_likely', {'no-writes'}, function(c, wanted, most, score, id, args, from)
  local sieve, left = wanted ~= '' and cjson.decode(wanted), tonumber(most)
  local found, read, looked = {}, 0, 0
  for i = from, #args do
    local name, likely, first = c.P .. 'line:' .. args[i], {}, 0
    if i == from then
      local at = redis.call('ZSCORE', name, id)
      local stays = at and tonumber(at) == tonumber(score)
      first = stays and redis.call('ZRANK', name, id) + 1 or redis.call('ZCOUNT', name, '-inf', '(' .. score)
    end
    local part = redis.call('ZRANGE', name, first, first + left - 1, 'WITHSCORES')
    for j = 1, #part, 2 do
      if not line.is_mark(part[j]) then
        looked = looked + 1
        if not sieve or may_fit(c, part[j], sieve) then likely[#likely + 1] = {part[j], part[j + 1]} end
      end
    end
    if likely[1] then found[#found + 1] = {args[i], likely} end
    left = left - #part / 2
    if left == 0 then return {read, looked, {part[#part], part[#part - 1]}, unpack(found)} end
    read = read + 1
  end
  return {read, looked, {}, unpack(found)}
end)

step.define('notices_take', {'allow-oom'}, function(c, app, most)
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

step.define('notices_sent', {'allow-oom'}, function(c, app, args, from)
  return retention.sent(c, app, args, from)
end)
