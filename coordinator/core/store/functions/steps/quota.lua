-- Flow: code and operators declare quotas, cool them down, look at them, and weigh groups.

local function declared_text(c, q)
  local quota = redis.call('HMGET', c.P .. 'quota:' .. q, 'limit', 'count', 'period', 'burst')
  return quota[1] and table.concat(quota, ' ') or ''
end

-- Lets the queues go on of all quotas in use that have this default.
local function let_all_go_on(c, prefix)
  local names = c.P .. 'quotas'
  local from, to = prefix == '' and '-' or '[' .. prefix, prefix == '' and '+' or '(' .. prefix .. '\255'
  for _, q in ipairs(redis.call('ZRANGEBYLEX', names, from, to)) do
    if redis.call('EXISTS', c.P .. 'quota-queue:' .. q) == 1 then quotas.look_after(c, q, 0) end
  end
end

step.define('quota_declare', {'allow-oom'}, function(c, name, prefix, limit, count, period, burst, act)
  act = audit.act(c, act)
  local text, defaults = table.concat({limit, count, period, burst}, ' '), c.P .. 'quota-defaults'
  local before
  if prefix then
    before = redis.call('HGET', defaults, name) or ''
    if string.sub(before, 1, #text + 1) == text .. ' ' then return 0 end
    redis.call('HSET', defaults, name, text .. ' ' .. audit.kept(act))
    let_all_go_on(c, name)
  else
    before = declared_text(c, name)
    if before == text then return 0 end
    redis.call('HSET', c.P .. 'quota:' .. name, 'limit', limit, 'count', count, 'period', period, 'burst', burst, 'by',
      audit.kept(act), unpack(count ~= '' and {'more', 1} or {}))
    redis.call('ZADD', c.P .. 'quotas', 0, name)
    base.add(c, 'freed', name)
  end
  audit.note(c, act, 'quota', 'quota', prefix and name .. '*' or name, string.match(before, '^[^{]*'), text)
  return 1
end)

step.define('quota_drop', {'allow-oom'}, function(c, name, prefix, act)
  act = audit.act(c, act)
  local before
  if prefix then
    before = redis.call('HGET', c.P .. 'quota-defaults', name)
    redis.call('HDEL', c.P .. 'quota-defaults', name)
    let_all_go_on(c, name)
  else
    before = declared_text(c, name)
    redis.call('HDEL', c.P .. 'quota:' .. name, 'limit', 'count', 'period', 'burst', 'by', 'tat', 'begun')
    base.add(c, 'freed', name)
  end
  if not before or before == '' then return 0 end
  audit.note(c, act, 'drop', 'quota', prefix and name .. '*' or name, string.match(before, '^[^{]*'), '')
  return 1
end)

step.define('quota_cool', {'allow-oom'}, function(c, name, till, act)
  act = audit.act(c, act)
  local quota = c.P .. 'quota:' .. name
  local before = redis.call('HGET', quota, 'until') or ''
  if till == '' then
    redis.call('HDEL', quota, 'until', 'cooled')
    base.add(c, 'freed', name)
  else
    till = quotas.cool_down(c, name, base.instant(c, till), audit.kept(act)) or ''
  end
  if before ~= till then audit.note(c, act, 'cool', 'quota', name, before, till) end
  return before == till and 0 or 1
end)

step.define('quotas_read', {'allow-oom'}, function(c, args, from)
  local found = {}
  for i = from, #args do
    local q = args[i]
    found[#found + 1] = quotas.shown(c, q)
  end
  return found
end)

step.define('quota_queue', {'allow-oom'}, function(c, name, most)
  return queues.list(c, name, tonumber(most))
end)

step.define('quota_place', {'allow-oom'}, function(c, name, id)
  return quotas.place(c, name, id)
end)

step.define('weight_set', {'allow-oom'}, function(c, group, weight, act)
  act = audit.act(c, act)
  local weights = c.P .. 'weights'
  local before = string.match(redis.call('HGET', weights, group) or '', '^[%d.]+') or '1'
  if before == weight then return before end
  shares.set_weight(c, group, weight ~= '1' and weight .. ' ' .. audit.kept(act) or nil)
  audit.note(c, act, 'weight', 'group', group, before, weight)
  return before
end)
