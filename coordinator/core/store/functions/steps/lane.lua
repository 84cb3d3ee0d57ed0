-- Lanes: operators pause them, release them from their holders, and count them by the beginnings of their keys.

step.define('lane_pause', {'allow-oom'}, function(c, key, till, act)
  return pauses.begin(c, key, till ~= '' and base.instant(c, till) or nil, audit.act(c, act))
end)

step.define('lane_resume', {'allow-oom'}, function(c, key, act)
  return pauses.over(c, key, audit.act(c, act))
end)

step.define('lane_release', {'allow-oom'}, function(c, key, act, holder)
  local first = holder
  if holder == '' then first = line.first_started(c, key) end
  local job = first and redis.call('ZSCORE', c.P .. 'line:' .. key, first) and record.read(c, first)
  if not job or not job.taken then return '' end
  if job.state == 'ready' then ready.drop(c, first, job) end
  if job.state == 'running' and job.class and redis.call('HEXISTS', c.P .. 'work:' .. job.node, job.runner) == 1 then
    redis.call('HSET', c.P .. 'work:' .. job.node, job.runner, job.token .. ' 1 ' .. first)
  end
  if job.phase == 'rollback' then
    settle.end_rollback(c, first, job)
    redis.call('HSET', job.name, 'rollback', 'failed')
  end
  act = audit.act(c, act)
  local detail = audit.detail(act, 'Released', c.wall)
  settle.finish(c, first, job, 'cancelled', 'error', detail)
  audit.note(c, act, 'release', 'lane', key, first, line.holder(c, key) or '')
  return first
end)

-- The group of a key below a prefix: to the next slash, or the whole key. Second value: the key alone is the group.
local function group_below(key, prefix)
  local slash = string.find(key, '/', #prefix + 1, true)
  if not slash then return key, true end
  return string.sub(key, 1, slash), false
end

local READ_AT_ONCE = 100 -- lanes, before the rest of a group is skipped

step.define('lanes_grouped', {'no-writes'}, function(c, prefix, after, most, named)
  local lanes, found, left, alone = c.P .. 'lanes', {}, tonumber(most), 0
  local till, unnamed = prefix == '' and '+' or '(' .. prefix .. '\255', tonumber(named)
  local from = after ~= '' and '(' .. after or prefix ~= '' and '[' .. prefix or '-'
  local function note(group, count)
    if count == 1 and unnamed <= 0 then
      alone = alone + 1
    else
      if count == 1 then unnamed = unnamed - 1 end
      found[#found + 1], found[#found + 2] = group, count
    end
  end
  while left > 0 do
    local keys = redis.call('ZRANGEBYLEX', lanes, from, till, 'LIMIT', 0, READ_AT_ONCE)
    local group, whole, count = nil, true, 0
    for _, key in ipairs(keys) do
      local of, itself = group_below(key, prefix)
      if of ~= group then
        if group then note(group, count) end
        group, whole, count = of, itself, 0
      end
      count = count + 1
    end
    if #keys < READ_AT_ONCE then
      if group then note(group, count) end
      return {'', alone, found}
    end
    local last = whole and group or group .. '\255'
    if not whole then count = redis.call('ZLEXCOUNT', lanes, '[' .. group, '(' .. last) end
    note(group, count)
    from, left = '(' .. last, left - READ_AT_ONCE
  end
  return {string.sub(from, 2), alone, found}
end)

-- The keys of a portion of `contended` or `paused`, and the cursor of the next one.
local function portion_of(c, kind, cursor)
  local hash = kind == 'paused'
  local next, members = unpack(redis.call(hash and 'HSCAN' or 'SSCAN', c.P .. kind, cursor, 'COUNT', 1000))
  local keys = {}
  for i = 1, #members, hash and 2 or 1 do keys[#keys + 1] = members[i] end
  return next, keys
end

step.define('lines_grouped', {'no-writes'}, function(c, kind, cursor, prefix, least)
  local next, keys = portion_of(c, kind, cursor)
  local found, places, rest, lines = {}, {}, 0, c.P .. 'line:'
  local paused = redis.call('EXISTS', c.P .. 'paused') == 1
  least = tonumber(least)
  for _, key in ipairs(keys) do
    if string.sub(key, 1, #prefix) == prefix then
      local group, whole = group_below(key, prefix)
      local more = redis.call('ZCARD', lines .. key) - 1
      if paused then more = more - line.marks(c, key) end
      if kind == 'paused' then more = math.min(more, 0) end
      if whole and more <= least then
        rest = rest + more
      else
        local at = places[group]
        if not at then
          at = #found + 1
          places[group], found[at], found[at + 1], found[at + 2] = at, group, 0, 0
        end
        found[at + 1], found[at + 2] = found[at + 1] + more, found[at + 2] + 1
      end
    end
  end
  return {next, rest, found}
end)
