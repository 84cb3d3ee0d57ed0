-- Outboxes: the rows that transactions of a database have left, submitted by the relay that holds the lane of the
-- outbox. outbox:<key> = ids of the rows that were submitted and may still be in the database.

local REFUSED = {full = true, other = true, undeclared = true, too_many = true, broken = true}

local function is_closed(closed, keys)
  for _, key in ipairs(keys) do
    if closed[key] then return true end
  end
  return false
end

-- closed: the keys of rows before this one that were not submitted; such a row waits, so that the order holds. A row
-- whose cause nobody knows closes no key: a row of that cause may come behind it.
local function submit_row(c, sent, row, closed)
  local id, keys = row[1], record.keys_of(row[2])
  if redis.call('SISMEMBER', sent, id) == 1 then return {'duplicate', -1, id, ''} end
  local reply
  if is_closed(closed, keys) then
    reply = {'behind', -1, id, ''}
  elseif not base.guarded(id, function() reply = submit.asked(c, row, 1) end) then
    reply = {'broken', -1, id, ''}
  end
  if reply[1] == 'behind' or REFUSED[reply[1]] then
    for _, key in ipairs(keys) do closed[key] = true end
  elseif reply[1] ~= 'unknown' then
    redis.call('SADD', sent, id)
  end
  return reply
end

step.define('outbox_submit', {}, function(c, key, token, args, from)
  if not held.is_ours(c, key, token) then return false end
  local sent, replies, closed, at = c.P .. 'outbox:' .. key, {}, {}, from
  while at <= #args do
    local size, row = tonumber(args[at]), {}
    for i = 1, size do row[i] = args[at + i] end
    replies[#replies + 1] = submit_row(c, sent, row, closed)
    at = at + size + 1
  end
  return replies
end)

step.define('outbox_forget', {'allow-oom'}, function(c, key, token, args, from)
  if not held.is_ours(c, key, token) then return 0 end
  for i = from, #args do redis.call('SREM', c.P .. 'outbox:' .. key, args[i]) end
  return 1
end)
