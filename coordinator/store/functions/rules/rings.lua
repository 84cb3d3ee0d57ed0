-- Rings: jobs that would wait for themselves, that is, circles in the graph of who waits for whom. A job in line waits
-- for the jobs before it in its lanes: with limit 1 for all of them, else for as many as bring it within the limit. A
-- job in no line yet (scheduled, collected) will wait for the started jobs there. A parked job waits for the jobs among
-- its sub-results. The code of a running job, or under a lock in plain code, may wait for one job or lock, which the
-- field `awaits` names, behind the holder's token. A held job waits for an operator. All other jobs go on by
-- themselves.
local rings = {}

-- The most edges that one walk follows. It assumes that everything beyond goes on, so it never reports a false ring.
rings.MOST = 1000
rings.MOST_NAMED = 20 -- the most members of a ring that its sentence names

local FIELDS = {'state', 'keys', 'exclusive', 'handles', 'token', 'awaits'}

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

-- Adds the jobs before it in a lane with limit 1: the started ones, and its predecessor, which waits for the rest.
local function behind(groups, key, members, marks, place, fixed)
  local stop = math.min(math.max(fixed, 1), place)
  for _, id in ipairs(redis.call('ZRANGE', members, marks, marks + stop - 1)) do add(groups, key, 1, {id}) end
  if place > stop then add(groups, key, 1, redis.call('ZRANGE', members, marks + place - 1, marks + place - 1)) end
end

-- Adds the jobs before it in one lane. stands: the job is in line.
local function before(c, groups, id, key, job, stands, most)
  local members, marks = c.P .. 'line:' .. key, line.marks(c, key)
  local fixed = math.min(started(c, members, marks), most)
  local rank = stands and redis.call('ZRANK', members, id)
  local place = not stands and fixed or rank and rank - marks or 0
  if place <= 0 then return end
  local limit, how = marks == 0 and 1 or math.max(1, line.limit(c, key)), {lane = key}
  if limit == 1 then return behind(groups, how, members, marks, place, fixed) end
  local names = redis.call('ZRANGE', members, marks, marks + math.min(place, most) - 1)
  add(groups, how, (job.exclusive and place or place - limit + 1) - (place - #names), names)
  for _, name in ipairs(job.exclusive and {} or names) do -- nobody overtakes an exclusive job
    if redis.call('HGET', c.P .. 'job:' .. name, 'exclusive') then add(groups, how, 1, {name}) end
  end
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

-- The groups of jobs, at most `most` in each, that a job waits for. handles: the sub-results that it is about to wait
-- for.
local function groups_of(c, id, most, handles)
  local job, groups = record.fill({name = c.P .. 'job:' .. id}, unpack(FIELDS)), {}
  local state = job.state
  if handles or state == 'parked' then
    sub_results(c, groups, handles or job.handles or '', most)
  elseif state == 'waiting' or state == 'scheduled' or state == 'collected' then
    for _, key in ipairs(record.keys_of(job.keys)) do before(c, groups, id, key, job, state == 'waiting', most) end
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
    node.groups, left, i = groups_of(c, node.id, left, i == 1 and handles), left - 1, i + 1
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
      or how.sub and 'waits for its sub-result %s' or 'waits in its code for %s'
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

-- Finds the ring in which `origin` waits for itself: nil, or a sentence and its ids. Last value: the edges left of
-- `left`. handles: sub-results that it is about to wait for; nil = it waits already.
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
