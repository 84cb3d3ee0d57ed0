-- Lines: line:<key> is a sorted set of job ids; a job has one score in all its lines.
-- Marks of an operator stand in front, at -inf; no job has such an id. PAUSED: nothing of the line starts. LIMIT:
-- another number than one may run at once. In a line with a mark every job that was started is pinned at -inf too, and
-- so is counted.
local line = {PAUSED = '\1paused', LIMIT = '\1limit'}

function line.is_mark(id) return string.byte(id) == 1 end

-- How many may run at once. limits: key -> n, then JSON of who set it.
function line.limit(c, key)
  local set = redis.call('HGET', c.P .. 'limits', key)
  return set and tonumber(string.match(set, '^%d+')) or 1
end

-- How many marks stand in front.
function line.marks(c, key)
  local heads = redis.call('ZRANGE', c.P .. 'line:' .. key, 0, 1)
  if not heads[1] or not line.is_mark(heads[1]) then return 0 end
  return heads[2] and line.is_mark(heads[2]) and 2 or 1
end

-- A job came into a line, or left it.
function line.changed(c) c.alone = false end

-- In a line with a mark: the first of weight `all` among those that might run now, or false. A step looks for it once,
-- and again where the line changed: to be pinned in front changes nothing.
function line.first_alone(c, key, limit)
  c.alone = c.alone or {}
  if c.alone[key] == nil then
    c.alone[key] = false
    for _, id in ipairs(redis.call('ZRANGE', c.P .. 'line:' .. key, 1, limit)) do
      if redis.call('HGET', c.P .. 'job:' .. id, 'weight') then
        c.alone[key] = id
        break
      end
    end
  end
  return c.alone[key]
end

-- The first job.
function line.holder(c, key)
  local marks = line.marks(c, key)
  return redis.call('ZRANGE', c.P .. 'line:' .. key, marks, marks)[1]
end

-- 0 = in front, -1 = not in line.
function line.place(c, id, key)
  local place = redis.call('ZRANK', c.P .. 'line:' .. key, id)
  return not place and -1 or place > 0 and place - line.marks(c, key) or 0
end

-- A job that was started stays in front of all its lines: from then on nobody overtakes it.
function line.pin(c, id, keys)
  local score = redis.call('ZSCORE', c.P .. 'line:' .. keys[1], id)
  if score ~= '-inf' then redis.call('HSET', c.P .. 'job:' .. id, 'score', score) end
  for _, key in ipairs(keys) do redis.call('ZADD', c.P .. 'line:' .. key, '-inf', id) end
end

-- (priority, sequence) as one number: the greater priority stands first, then the earlier job. to: back | front of its
-- priority. Second: the sequence.
function line.new_score(c, priority, to)
  local sequence = to == 'front' and -redis.call('INCR', c.P .. 'fronts') or redis.call('INCR', c.P .. 'sequence')
  return string.format('%.0f', sequence - priority * 17592186044416), sequence
end

-- Into all its lines. Is it in front of all? Second: has one of them a mark?
function line.enter(c, id, keys, score)
  local first, marked = true, false
  line.changed(c)
  for _, key in ipairs(keys) do
    local members = c.P .. 'line:' .. key
    redis.call('ZADD', members, score, id)
    local heads = redis.call('ZRANGE', members, '0', '1')
    first = first and heads[1] == id
    if not heads[2] then
      redis.call('ZADD', c.P .. 'lanes', '0', key)
    elseif line.is_mark(heads[1]) then
      marked = true
    elseif heads[1] == id then
      local other = redis.call('HMGET', c.P .. 'job:' .. heads[2], 'state', 'keys')
      if other[1] ~= 'waiting' then
        line.pin(c, heads[2], record.keys_of(other[2]))
        first = false
      end
    end
  end
  return first, marked
end

return line
