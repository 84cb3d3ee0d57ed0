-- Lines: line:<key> is a sorted set of job ids; a job has the same score in all its lines.
-- Marks of operators stand in front, at -inf; no job has such an id. PAUSED: nothing in the line starts. LIMIT: another
-- number of jobs than one may run at once. In a line with a mark, started jobs are pinned at -inf too, to be counted.
local line = {PAUSED = '\1paused', LIMIT = '\1limit'}

function line.is_mark(id) return string.byte(id) == 1 end

-- How many jobs of a lane may run at once. limits: key -> n, then JSON of who set it.
function line.limit(c, key)
  local set = redis.call('HGET', c.P .. 'limits', key)
  return set and tonumber(string.match(set, '^%d+')) or 1
end

-- The number of marks in front.
function line.marks(c, key)
  local heads = redis.call('ZRANGE', c.P .. 'line:' .. key, 0, 1)
  if not heads[1] or not line.is_mark(heads[1]) then return 0 end
  return heads[2] and line.is_mark(heads[2]) and 2 or 1
end

-- Forgets cached places after a job came into a line, or left it.
function line.changed(c) c.alone = false end

-- In a line with a mark: the first exclusive job among those within the limit, or false. Cached until the line
-- changes; pinning a job does not change this answer.
function line.first_alone(c, key, limit)
  c.alone = c.alone or {}
  if c.alone[key] == nil then
    c.alone[key] = false
    for _, id in ipairs(redis.call('ZRANGE', c.P .. 'line:' .. key, 1, limit)) do
      if redis.call('HGET', c.P .. 'job:' .. id, 'exclusive') then
        c.alone[key] = id
        break
      end
    end
  end
  return c.alone[key]
end

-- The first job of a line.
function line.holder(c, key)
  local marks = line.marks(c, key)
  return redis.call('ZRANGE', c.P .. 'line:' .. key, marks, marks)[1]
end

-- The holder of the lane: the started job with the earliest first claim; nil: no job was started.
function line.first_started(c, key)
  local members, marks, first, since = c.P .. 'line:' .. key, line.marks(c, key), nil, nil
  local last = math.max(marks, redis.call('ZCOUNT', members, '-inf', '-inf') - 1)
  for _, id in ipairs(redis.call('ZRANGE', members, marks, last)) do
    local taken = tonumber(redis.call('HGET', c.P .. 'job:' .. id, 'taken') or '')
    if taken and (not since or taken < since) then first, since = id, taken end
  end
  return first
end

-- The place of a job: 0 = in front, -1 = not in line.
function line.place(c, id, key)
  local place = redis.call('ZRANK', c.P .. 'line:' .. key, id)
  return not place and -1 or place > 0 and place - line.marks(c, key) or 0
end

-- Pins a started job in front of all its lines, so that no job overtakes it.
function line.pin(c, id, keys)
  local score = redis.call('ZSCORE', c.P .. 'line:' .. keys[1], id)
  if score ~= '-inf' then redis.call('HSET', c.P .. 'job:' .. id, 'score', score) end
  for _, key in ipairs(keys) do redis.call('ZADD', c.P .. 'line:' .. key, '-inf', id) end
end

-- Packs (priority, sequence) into one score: higher priorities come first, then earlier jobs. to: back | front of its
-- priority. Second value: the sequence.
function line.new_score(c, priority, to)
  local sequence = to == 'front' and -redis.call('INCR', c.P .. 'fronts') or redis.call('INCR', c.P .. 'sequence')
  return base.text_of(sequence - priority * 17592186044416), sequence
end

-- Lists a lane under `contended` where more than one job stands in its line. heads: the first two members of that.
function line.note(c, key, heads)
  local more = heads[2]
  if more and line.is_mark(heads[1]) then
    local marks = line.is_mark(heads[2]) and 2 or 1
    more = redis.call('ZCARD', c.P .. 'line:' .. key) > marks + 1
  end
  redis.call(more and 'SADD' or 'SREM', c.P .. 'contended', key)
end

-- Adds a job to all its lines. Returns true if it is in front of all; second value: true if one has a mark.
function line.enter(c, id, keys, score)
  local first, marked = true, false
  line.changed(c)
  for _, key in ipairs(keys) do
    local members = c.P .. 'line:' .. key
    redis.call('ZADD', members, score, id)
    local heads = redis.call('ZRANGE', members, '0', '1')
    first = first and heads[1] == id
    if heads[2] then line.note(c, key, heads) else redis.call('ZADD', c.P .. 'lanes', '0', key) end
    if line.is_mark(heads[1]) then
      marked = true
    elseif heads[1] == id and heads[2] then
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
