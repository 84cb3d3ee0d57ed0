-- Parked jobs: they wait for sub-results, which maintenance of their app watches.

local TWO_DAYS = 172800000 -- ms that notes of sub-tasks last

step.define('child_began', {'allow-oom'}, function(c, parent, child, fence, node, incarnation)
  local begun = c.P .. 'begun:' .. parent
  local noted, life = string.match(redis.call('HGET', begun, child) or '', '^(%d+)(.*)$')
  noted = tonumber(noted) or -1
  if noted > tonumber(fence) or noted == tonumber(fence) and life == '' then return -1 end
  local state = redis.call('HGET', c.P .. 'job:' .. parent, 'state')
  if not state or states.TERMINAL[state] then return 0 end
  redis.call('HSET', begun, child, fence .. ' ' .. incarnation .. ' ' .. node)
  redis.call('PEXPIRE', begun, TWO_DAYS)
  return 1
end)

step.define('children_over', {'allow-oom'}, function(c, parent, args, from)
  local begun = c.P .. 'begun:' .. parent
  for i = from, #args do
    local fence = string.match(redis.call('HGET', begun, args[i]) or '', '^%d+')
    if fence then redis.call('HSET', begun, args[i], fence) end
  end
  return 0
end)

step.define('child_ended', {'allow-oom'}, function(c, parent, child)
  local note = redis.call('HGET', c.P .. 'begun:' .. parent, child)
  if note and string.find(note, ' ', 1, true) then redis.call('HDEL', c.P .. 'begun:' .. parent, child) end
  return states.look_at(c, parent) and 1 or 0
end)

step.define('children_lost', {'allow-oom'}, function(c, parent, args, from)
  local lost = {}
  for i = from, #args do
    local note = redis.call('HGET', c.P .. 'begun:' .. parent, args[i])
    local incarnation, node = string.match(note or '', '^%d+ (%S+) (.*)$')
    if incarnation then
      local lives = redis.call('HGET', c.P .. 'node:' .. node, 'incarnation')
      local gone = redis.call('GET', c.P .. 'gone:' .. node) == incarnation
      if gone or lives and lives ~= incarnation then lost[#lost + 1] = args[i] end
    end
  end
  return lost
end)

step.define('parked_take', {'allow-oom'}, function(c, app, pause)
  local parked, taken = c.P .. 'parked:' .. app, {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', parked, '-inf', c.now, 'LIMIT', 0, 100)) do
    local job = record.read(c, id)
    local handles, till, stale = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'handles', 'till', 'stale'))
    if job and stale then
      redis.call('HDEL', c.P .. 'job:' .. id, 'stale')
      taken[#taken + 1] = {id, '', stale, 2}
    end
    if job and job.state == 'parked' then
      till = tonumber(till) or 0
      redis.call('ZADD', parked, till > c.now and math.min(c.now + pause, till) or c.now + pause, id)
      taken[#taken + 1] = {id, job.last or '', handles or '', till > 0 and till <= c.now and 1 or 0}
    else
      redis.call('ZREM', parked, id)
      if job and handles then
        redis.call('HDEL', c.P .. 'job:' .. id, 'handles')
        taken[#taken + 1] = {id, '', handles, 2}
      end
    end
  end
  return taken
end)

step.define('job_unpark', {'allow-oom'}, function(
  c, id, last, kind, detail, delay, most, next_class, next_task, next_limit)
  local job = record.read(c, id)
  if not job or job.state ~= 'parked' or job.event or job.last ~= last then return '' end
  states.leave(c, id, job)
  history.note(c, job, 'woken')
  redis.call('HDEL', c.P .. 'job:' .. id, 'handles')
  return settle.conclude(c, id, job, {kind = kind, detail = detail, delay = delay, most = most, class = next_class,
    task = next_task, limit = next_limit})
end)
