-- Lines: line:<key> is a sorted set of job ids; a job has the same score in all its lines. The mark PAUSED of an
-- operator stands in front, at -inf: nothing in the line starts; no job has such an id. In a line with the mark, and
-- where a job of a greater priority came later, started jobs are pinned at -inf, too. line: (without a key) has the
-- jobs without a key, to be found; nobody in it waits for another.
local line = {PAUSED = '\1paused'}

function line.is_mark(id) return string.byte(id) == 1 end

-- The number of marks in front.
function line.marks(c, key)
  local head = redis.call('ZRANGE', c.P .. 'line:' .. key, 0, 0)[1]
  return head and line.is_mark(head) and 1 or 0
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

-- Puts a pinned job that was never claimed back to its place. False: it was not pinned.
function line.unpin(c, id, job, keys)
  local score = redis.call('HGET', job.name, 'score')
  if not score or not keys[1] then return false end
  redis.call('HDEL', job.name, 'score', 'rule')
  for _, key in ipairs(keys) do redis.call('ZADD', c.P .. 'line:' .. key, 'XX', score, id) end
  return true
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
    more = redis.call('ZCARD', c.P .. 'line:' .. key) > 2
  end
  redis.call(more and 'SADD' or 'SREM', c.P .. 'contended', key)
end

-- Adds a job to all its lines; the record of a job in no line keeps its score. Returns true if it is in front of all;
-- and the jobs that it overtook and that lack a quota, nil: none (see admit.enter).
function line.enter(c, id, keys, score)
  local first, overtaken = true, nil
  if not keys[1] then
    redis.call('HSET', c.P .. 'job:' .. id, 'score', score)
    redis.call('ZADD', c.P .. 'line:', score, id)
  end
  for _, key in ipairs(keys) do
    local members = c.P .. 'line:' .. key
    redis.call('ZADD', members, score, id)
    local heads = redis.call('ZRANGE', members, '0', '1')
    first = first and heads[1] == id
    if heads[2] then line.note(c, key, heads) else redis.call('ZADD', c.P .. 'lanes', '0', key) end
    if heads[1] == id and heads[2] then
      local other = redis.call('HMGET', c.P .. 'job:' .. heads[2], 'state', 'keys', 'lack')
      if other[1] ~= 'waiting' then
        line.pin(c, heads[2], record.keys_of(other[2]))
        first = false
      elseif other[3] then
        overtaken = overtaken or {}
        overtaken[#overtaken + 1] = heads[2]
      end
    end
  end
  return first, overtaken
end

-- Removes a job from all its lines.
function line.leave(c, id, keys)
  if not keys[1] then redis.call('ZREM', c.P .. 'line:', id) end
  for _, key in ipairs(keys) do redis.call('ZREM', c.P .. 'line:' .. key, id) end
end

return line
