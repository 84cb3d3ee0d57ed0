-- The sweep: does what is due by the clock. Any node's supervisor runs it, one at a time.

local MOST = 100 -- the most items of each kind in one step, so that other steps get in between
local AGAIN = 60000 -- ms until the next try with a damaged record

-- The first due items of a set; sets c.more if there may be more.
local function first_due(c, set, at)
  local found = redis.call('ZRANGEBYSCORE', c.P .. set, '-inf', at, 'LIMIT', 0, MOST)
  if #found == MOST then c.more = 1 end
  return found
end

-- Removes the due jobs from the set, and calls `act` for each that still exists. An error is tried again later.
local function each_due(c, set, at, act)
  for _, id in ipairs(first_due(c, set, at)) do
    redis.call('ZREM', c.P .. set, id)
    local good = base.guarded(id, function()
      local job = record.read(c, id)
      if job then act(id, job) end
    end)
    if not good then redis.call('ZADD', c.P .. set, at + AGAIN, id) end
  end
end

local function end_leases(c)
  local lost = {}
  local function lose(id, job)
    if job.state ~= 'running' then return end
    history.tally(c, 'leases_lost')
    settle.lose(c, id, job, 'lost', '"its lease ended: the process, its supervisor or its node is gone"')
    lost[#lost + 1] = id
  end
  each_due(c, 'leases', c.uptime, lose)
  each_due(c, 'locks', c.uptime, lose)
  return lost
end

local function start_due(c, set, at)
  each_due(c, set, at, function(id, job)
    if job.state == 'retrying' then settle.put_back(c, id, job) end
    if job.state == 'collecting' then collect.go(c, id, job) end
    if job.state ~= 'scheduled' then return end
    redis.call('SREM', c.P .. 'state:scheduled', id)
    local score, waited = redis.call('HGET', job.name, 'score'), c.now - job.submitted
    admit.join(c, id, record.keys_of(job.keys), score, 'waited', string.format('eta %d', waited))
  end)
end

-- True for a rollback that a node will run as soon as it has room: it gets more time.
local function waits_for_room(c, id, job)
  if job.phase ~= 'rollback' or job.state ~= 'ready' then return false end
  if not classes.can_run(c, job.class, job.task) then return false end
  redis.call('ZADD', c.P .. 'expiry', c.now + record.max_lifetime(job), id)
  return true
end

-- Lets the queues of quotas go on whose rate or cool-down is due, and audits some quotas.
local function let_quotas_go_on(c)
  if alarm.look(c, MOST) == MOST then c.more = 1 end
  local after = redis.call('HGET', c.P .. 'swept', 'audited') or ''
  local last = quotas.audit(c, after, MOST)
  if last ~= after then redis.call('HSET', c.P .. 'swept', 'audited', last) end
  admit.freed(c)
  c.set_alarm = true -- another server may have had it, or it was set before a node could be woken for it
end

-- Tells dependants of ended causes, and looks after blocked jobs and those that wait for an event in vain.
local function look_after_dependants(c)
  each_due(c, 'timeouts', c.now, function(id, job) events.time_out(c, id, job) end)
  redis.call('ZREMRANGEBYSCORE', c.P .. 'events', '(0', base.text_of(c.wall))
  local cursor = string.match(redis.call('HGET', c.P .. 'swept', 'blocked') or '', '^%d+$') or '0'
  redis.call('HSET', c.P .. 'swept', 'blocked', dependants.audit(c, cursor))
  if dependants.go_on(c) then c.more = 1 end
end

-- Ends the pauses whose time is over.
local function end_pauses(c)
  for _, key in ipairs(first_due(c, 'pauses', c.now)) do
    pauses.over(c, key, {why = 'its time was over', by = 'the pause', at = c.wall})
  end
end

local function expire(c, set, at)
  each_due(c, set, at, function(id, job)
    if states.TERMINAL[job.state] or job.state == 'running' or waits_for_room(c, id, job) then return end
    if job.state == 'ready' then ready.drop(c, id, job) end
    local why = job.taken and '"max_lifetime is over"' or '"not started in time"'
    settle.give_up(c, id, job, 'expired', 'error', why)
  end)
end

-- Fails the attempt of the youngest parked job on a ring. Without a parked job, code waits for itself: it repeats its
-- own request, and gets the error then.
local function break_ring(c, ids, why)
  local youngest, newest = nil, -1
  for _, id in ipairs(ids) do
    local state, fence = unpack(redis.call('HMGET', c.P .. 'job:' .. id, 'state', 'fence'))
    if state == 'parked' and tonumber(fence) > newest then youngest, newest = id, tonumber(fence) end
  end
  if not youngest then return end
  local job = record.read(c, youngest)
  states.leave(c, youngest, job)
  settle.conclude(c, youngest, job, {kind = 'failed', detail = rings.error(why)})
end

-- Breaks rings that closed after their jobs had parked. A sweep follows a bounded number of edges; the next sweep goes
-- on behind the last job.
local function end_rings(c)
  local left, parked, last = rings.MOST, c.P .. 'walks', redis.call('HGET', c.P .. 'swept', 'walked') or ''
  local ids = redis.call('ZRANGEBYLEX', parked, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, rings.MOST)
  last = ''
  for i, id in ipairs(ids) do
    local why, ring
    why, ring, left = rings.find(c, id, nil, left)
    if why then break_ring(c, ring, why) end
    if left <= 0 then
      last = ids[math.max(1, i - 1)]
      break
    end
  end
  redis.call('HSET', c.P .. 'swept', 'walked', last)
end

step.define('sweep', {'allow-oom'}, function(c, interval, gap, deadline)
  local last = tonumber(redis.call('HGET', c.P .. 'swept', 'last')) or 0
  if last <= c.now and c.now - last < tonumber(interval) then return {0, {}, {}, 0, 0} end
  if deadline ~= '' and c.now > tonumber(deadline) then return {0, {}, {}, 0, 0} end
  redis.call('HSET', c.P .. 'swept', 'last', c.now_text)
  base.keep_gap(c, tonumber(gap))

  local lost, gone = end_leases(c), first_due(c, 'alive', c.uptime)
  for _, node in ipairs(gone) do
    nodes.lose(c, node, nodes.held(c, node))
    nodes.forget(c, node)
  end
  start_due(c, 'due', c.now)
  start_due(c, 'starts', c.wall)
  expire(c, 'expiry', c.now)
  expire(c, 'latest', c.wall)
  end_pauses(c)
  look_after_dependants(c)
  let_quotas_go_on(c)
  retention.forget_coalesced(c)
  local cursor = string.match(redis.call('HGET', c.P .. 'swept', 'classes') or '', '^%d+$') or '0'
  redis.call('HSET', c.P .. 'swept', 'classes', classes.forget_some(c, cursor))
  if c.more == 0 then
    history.bound(c)
    history.sample(c)
    end_rings(c)
    nodes.wake_idle(c)
  end
  return {1, lost, gone, redis.call('ZCOUNT', c.P .. 'sorters', '-inf', c.now), c.more}
end)
