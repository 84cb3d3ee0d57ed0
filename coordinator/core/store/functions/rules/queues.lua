-- The queue of a quota: the jobs that have their turn in all lanes and lack units or rate of this quota.
--   quota-queue:<q>         sorted set: kinds, each by the place of its first job
--   quota-kind:<q>\n<kind>  sorted set: the jobs of a kind, by their places
-- A kind is "<units> <task>\n<class>": jobs that the same nodes take, and of which each fits where another does; all
-- locks in plain code are one kind, ''. Places: see rules/quotas.lua.
local queues = {}

queues.MOST = 1000 -- kinds at which one step looks, to find out who may go on

-- use: how the job uses the quota.
function queues.kind_of(job, use)
  if not job.class or not use then return '' end
  return (use.all and '*' or base.text_of(use.units)) .. ' ' .. job.task .. '\n' .. job.class
end

-- The units ('*' = all), the task and the class of a kind; nil: of locks.
function queues.parts_of(kind) return string.match(kind, '^(%S+) ([^\n]*)\n(.*)$') end

local function name_of(c, q) return c.P .. 'quota-queue:' .. q end

local function jobs_of(c, q, kind) return c.P .. 'quota-kind:' .. q .. '\n' .. kind end

-- Puts a kind at the place of its first job.
local function place_kind(c, q, kind)
  local place = redis.call('ZRANGE', jobs_of(c, q, kind), 0, 0, 'WITHSCORES')[2]
  if place then redis.call('ZADD', name_of(c, q), place, kind) else redis.call('ZREM', name_of(c, q), kind) end
end

function queues.add(c, q, id, kind, place)
  redis.call('ZADD', jobs_of(c, q, kind), place, id)
  place_kind(c, q, kind)
  if c.empty then c.empty[q] = nil end
end

function queues.remove(c, q, id, kind)
  redis.call('ZREM', jobs_of(c, q, kind), id)
  place_kind(c, q, kind)
end

-- Gives a job another kind.
function queues.change(c, q, id, kind, other)
  local place = redis.call('ZSCORE', jobs_of(c, q, kind), id)
  queues.remove(c, q, id, kind)
  queues.add(c, q, id, other, place)
end

-- True if nobody waits, as far as this step knows.
function queues.is_empty(c, q)
  return c.empty and c.empty[q] or redis.call('EXISTS', name_of(c, q)) == 0
end

function queues.note_empty(c, q)
  c.empty = c.empty or {}
  c.empty[q] = true
end

-- At most so many kinds up to a place, behind the first `from`.
function queues.kinds(c, q, place, from, most)
  return redis.call('ZRANGEBYSCORE', name_of(c, q), '-inf', place, 'LIMIT', base.text_of(from), base.text_of(most))
end

-- The kind with so many before it; nil: there is none.
function queues.kind_at(c, q, rank)
  return redis.call('ZRANGE', name_of(c, q), base.text_of(rank), base.text_of(rank))[1]
end

function queues.count_kinds(c, q) return redis.call('ZCARD', name_of(c, q)) end

-- The first job of a kind; '' = none, where one of its entries was damaged.
function queues.first(c, q, kind) return redis.call('ZRANGE', jobs_of(c, q, kind), 0, 0)[1] or '' end

function queues.count(c, q)
  local count = 0
  for _, kind in ipairs(redis.call('ZRANGE', name_of(c, q), 0, -1)) do
    count = count + redis.call('ZCARD', jobs_of(c, q, kind))
  end
  return count
end

-- How many jobs stand before one; nil: it is not there.
function queues.rank(c, q, id, kind)
  local place, rank = redis.call('ZSCORE', jobs_of(c, q, kind), id), 0
  if not place then return nil end
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', name_of(c, q), '-inf', place)) do
    if other ~= kind then rank = rank + redis.call('ZCOUNT', jobs_of(c, q, other), '-inf', '(' .. place) end
  end
  return rank + redis.call('ZRANK', jobs_of(c, q, kind), id)
end

-- The first `most` jobs in order: id, place, id, place …
function queues.list(c, q, most)
  local all, found = {}, {}
  for _, kind in ipairs(redis.call('ZRANGE', name_of(c, q), 0, most - 1)) do
    local jobs = redis.call('ZRANGE', jobs_of(c, q, kind), 0, most - 1, 'WITHSCORES')
    for i = 1, #jobs, 2 do all[#all + 1] = {jobs[i], jobs[i + 1], tonumber(jobs[i + 1])} end
  end
  table.sort(all, function(a, b)
    if a[3] ~= b[3] then return a[3] < b[3] end
    return a[1] < b[1]
  end)
  for i = 1, math.min(most, #all) do
    found[#found + 1] = all[i][1]
    found[#found + 1] = all[i][2]
  end
  return found
end

return queues
