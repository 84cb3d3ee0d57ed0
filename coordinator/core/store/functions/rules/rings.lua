-- Rings: jobs that would wait for themselves, that is, circles in the graph of who waits for whom. A job in line
-- waits for the jobs before it in its lanes; one that lacks a quota for the job of its queue that holds it up, or
-- for as many users as free enough units. A job in no line yet (scheduled, collected, collecting, blocked) will wait
-- for the started jobs there, a blocked one for its causes before that. A parked job waits for the jobs among its
-- sub-results. The code of a running job, or under a lock in plain code, may wait for one job or lock, which the
-- field `awaits` names, behind the holder's token. A held job waits for an operator. All other jobs go on by
-- themselves.
local rings = {}

-- The most edges that one walk follows. It assumes that everything beyond goes on, so it never reports a false ring.
rings.MOST = 1000
rings.MOST_NAMED = 20 -- the most members of a ring that its sentence names

local IN_NO_LINE = {scheduled = true, collected = true, collecting = true}
local FIELDS = {'state', 'keys', 'handles', 'token', 'awaits', 'lack', 'uses', 'taken', 'task', 'class', 'event'}

-- Adds a group: `need` of its members must end before the job goes on; `how` says why.
local function add(groups, how, need, members)
  if need > 0 then groups[#groups + 1] = {how = how, need = need, members = members} end
end

-- The number of jobs in a line that nobody can overtake: the pinned ones, else the first one if it is started.
local function started(c, members, marks)
  local pinned = redis.call('ZCOUNT', members, '-inf', '-inf') - marks
  if pinned > 0 then return pinned end
  local first = redis.call('ZRANGE', members, marks, marks)[1]
  return first and redis.call('HGET', c.P .. 'job:' .. first, 'state') ~= 'waiting' and 1 or 0
end

-- Adds the jobs before it in one lane: the started ones, and its predecessor, which waits for the rest. stands: the job
-- is in line.
local function before(c, groups, id, key, stands, most)
  local members, marks = c.P .. 'line:' .. key, line.marks(c, key)
  local fixed = math.min(started(c, members, marks), most)
  local rank = stands and redis.call('ZRANK', members, id)
  local place = not stands and fixed or rank and rank - marks or 0
  if place <= 0 then return end
  local how, stop = {lane = key}, math.min(math.max(fixed, 1), place)
  for _, other in ipairs(redis.call('ZRANGE', members, marks, marks + stop - 1)) do add(groups, how, 1, {other}) end
  if place > stop then add(groups, how, 1, redis.call('ZRANGE', members, marks + place - 1, marks + place - 1)) end
end

-- Adds what a job that lacks a quota waits for: who holds it up, or as many of the users as free enough units.
-- parking?: a job that is about to park, and gives back what it does not keep until its end.
local function lacking(c, groups, id, job, most, parking)
  local how, quota = {quota = job.lack}, quotas.read(c, job.lack, true)
  local head = quotas.ahead(c, quota, id, job)
  if head then return add(groups, how, 1, {head}) end
  local users, names, units = redis.call('HGETALL', c.P .. 'quota-users:' .. job.lack), {}, {}
  for i = 1, math.min(#users, 2 * most), 2 do
    local user, number = users[i], tonumber(users[i + 1])
    if user == parking and quotas.gives_back(c, user, job.lack) then
      quota.used = quota.used - number
      if quota.alone == user then quota.alone = nil end
    else
      names[#names + 1], units[#units + 1] = user, number
    end
  end
  local need = quotas.missing(quota, job)
  table.sort(units, function(a, b) return a > b end)
  local count = 0
  while need > 0 and units[count + 1] do
    count = count + 1
    need = need - units[count]
  end
  add(groups, how, count, names)
end

-- Adds the jobs among sub-results. handles: JSON {"ids": [id or null, …]}. Ordinary tasks among them are ignored.
local function sub_results(c, groups, handles, most)
  local good, subs = pcall(cjson.decode, handles)
  if not good or type(subs) ~= 'table' or type(subs.ids) ~= 'table' then return end
  for i = 1, math.min(#subs.ids, most) do
    local id = type(subs.ids[i]) == 'string' and subs.ids[i]
    local alias, state = unpack(id and redis.call('HMGET', c.P .. 'job:' .. id, 'alias', 'state') or {})
    if alias or state and not states.TERMINAL[state] then add(groups, {sub = true}, 1, {alias or id}) end
  end
end

-- Adds the jobs after which a blocked job runs. An event comes from outside: it may come.
local function causes_of(c, groups, id, most)
  for i, cause in ipairs(redis.call('SMEMBERS', c.P .. 'causes:' .. id)) do
    if i <= most and not causes.event_of(cause) then add(groups, {after = true}, 1, {cause}) end
  end
end

-- The groups of jobs, at most `most` in each, that a job waits for. handles: the sub-results that it is about to wait
-- for.
local function groups_of(c, id, most, handles, parking)
  local job, groups = record.fill({name = c.P .. 'job:' .. id}, unpack(FIELDS)), {}
  local state = job.state
  if handles or state == 'parked' and not job.event then
    sub_results(c, groups, handles or job.handles or '', most)
  elseif state == 'waiting' or state == 'blocked' or IN_NO_LINE[state] then
    if state == 'blocked' then causes_of(c, groups, id, most) end
    for _, key in ipairs(record.keys_of(job.keys)) do before(c, groups, id, key, state == 'waiting', most) end
    if job.lack then lacking(c, groups, id, job, most, parking) end
  elseif state == 'ready' and job.lack then
    lacking(c, groups, id, job, most, parking)
  elseif state == 'running' and job.awaits then
    local mine = job.token .. ' ' -- what an earlier claim waited for does not count
    if string.sub(job.awaits, 1, #mine) == mine then
      add(groups, {code = true}, 1, {string.sub(job.awaits, #mine + 1)})
    end
  elseif state == 'held' then
    add(groups, {}, 1, {})
  end
  return groups
end

-- The graph of all that `origin` waits for, up to `left` edges: nodes by id, and the number of edges left.
local function explore(c, origin, left, handles)
  local first = {id = origin, behind = {}}
  local nodes, queue, i = {[origin] = first}, {first}, 1
  while queue[i] and left > 0 do
    local node = queue[i]
    local own = i == 1 and handles
    node.groups, left, i = groups_of(c, node.id, left, own, handles and origin), left - 1, i + 1
    node.open = #node.groups
    for _, group in ipairs(node.groups) do
      for _, id in ipairs(group.members) do
        if not nodes[id] then
          nodes[id] = {id = id, behind = {}}
          queue[#queue + 1] = nodes[id]
        end
        table.insert(nodes[id].behind, {node, group})
        left = left - 1
      end
    end
  end
  return nodes, left
end

-- Removes the nodes that can go on. The rest waits for itself, or for an operator.
local function drop_full(nodes)
  local free = {}
  for _, node in pairs(nodes) do
    if not node.groups or node.open == 0 then free[#free + 1] = node end
  end
  while free[1] do
    local node = table.remove(free)
    nodes[node.id] = nil
    for _, edge in ipairs(node.behind) do
      local other, group = unpack(edge)
      group.need = group.need - 1
      if group.need == 0 then
        other.open = other.open - 1
        if other.open == 0 then free[#free + 1] = other end
      end
    end
  end
end

-- The shortest circle through `origin`: ids, and how each waits for the next.
local function way_back(nodes, origin)
  local queue, via, i = {nodes[origin]}, {}, 1
  while queue[i] do
    local node = queue[i]
    i = i + 1
    for _, group in ipairs(node.groups) do
      for _, id in ipairs(group.members) do
        if nodes[id] and not via[id] then
          via[id] = {node.id, group.how}
          queue[#queue + 1] = nodes[id]
        end
        if id == origin and via[id] then
          local ids, hows = {}, {}
          repeat
            id, hows[#hows + 1] = unpack(via[id])
            ids[#ids + 1] = id
          until id == origin
          return ids, hows
        end
      end
    end
  end
end

-- Describes the ring in a sentence, from `origin` on; the ids come in reverse order.
local function described(ids, hows)
  local parts, count = {}, #ids
  for i = count, math.max(1, count - rings.MOST_NAMED + 1), -1 do
    local how, other = hows[i], ids[i - 1] or ids[count]
    local text = how.lane and "waits behind %s in lane '" .. string.gsub(how.lane, '%%', '%%%%') .. "'"
      or how.quota and "waits for units of quota '" .. string.gsub(how.quota, '%%', '%%%%') .. "' behind %s"
      or how.sub and 'waits for its sub-result %s' or how.after and 'is to run after %s' or 'waits in its code for %s'
    parts[#parts + 1] = ids[i] .. ' ' .. string.format(text, other)
  end
  if count > rings.MOST_NAMED then parts[#parts + 1] = 'and ' .. count - rings.MOST_NAMED .. ' more' end
  return table.concat(parts, '; ')
end

-- Notes that the code with this token of a job or lock waits for another one; '' = for none any more.
function rings.await(c, id, token, other)
  local name = c.P .. 'job:' .. id
  if redis.call('HGET', name, 'token') ~= token then return end
  if other == '' then
    redis.call('HDEL', name, 'awaits')
  else
    redis.call('HSET', name, 'awaits', token .. ' ' .. other)
  end
end

-- The sentence as JSON for a record's field `error`.
function rings.error(why)
  local message = 'it would wait for itself: ' .. why
  return cjson.encode({type = 'WouldDeadlock', module = 'coordinator.errors', message = message})
end

-- Finds the ring in which `origin` waits for itself: nil, or a sentence and its ids. Last value: the edges left.
-- handles?: sub-results that it is about to wait for; nil = it waits already. left?: how many edges it may follow.
function rings.find(c, origin, handles, left)
  local nodes
  nodes, left = explore(c, origin, left or rings.MOST, handles)
  drop_full(nodes)
  if not nodes[origin] then return nil, nil, left end
  local ids, hows = way_back(nodes, origin)
  if not ids then return nil, nil, left end
  return described(ids, hows), ids, left
end

return rings
