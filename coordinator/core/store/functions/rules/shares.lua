-- Fair shares: of all groups in the classes of a node, the one goes first that has used the fewest slot seconds over
-- its weight. A claim is charged what its task usually takes, and its end corrects that (start-time fair queueing).
-- shares: group -> µs of slots over weight so far. weights: group -> its weight and the act.
-- A group that comes back begins where its class is, and a class where the claims of its nodes are. The caches of this
-- file are lost when the library is loaded anew: they only decide who goes first.
local shares = {}

local UNKNOWN = 1000 -- ms that a task takes whose runs nobody has seen
local LEAST = 1 -- ms that a claim is charged at least
local DOUBT = 100 -- ms: a smaller difference from what was charged, or one of less than a quarter, waits for others
local NEW = 0.25 -- how much the last run counts in what a task usually takes
local reached = {} -- prefix -> class -> where it is: the share at which its last claim began
local floors = {} -- prefix -> class -> the share at which a claim begins at least
local met = {} -- prefix -> node -> true: the groups of its classes have met
local MOST_MET = 1000 -- nodes of which that is noted; then all are forgotten
local noted_nodes = 0
local MOST_NOTED = 10000 -- groups of which such differences are noted; then all are forgotten
local noted = 0
local missed = {} -- prefix -> class and group -> ms that were charged too little, and are not written yet
local owed = {} -- prefix -> class -> what the group that stands there alone is charged, and is not written yet
local usual = {} -- prefix -> task -> ms
local weighed = {} -- prefix -> {term, so}: whether a group has a weight

-- What a cache has of this installation.
local function of(cache, c)
  local own = cache[c.P]
  if not own then
    own = {}
    cache[c.P] = own
  end
  return own
end

local function usual_of(c, task)
  local known = of(usual, c)
  if not known[task] then known[task] = tonumber(redis.call('HGET', c.P .. 'usual', task) or UNKNOWN) end
  return known[task]
end

-- True if a group has a weight: read once in each term of a server as the master.
local function are_weighed(c)
  local known, term = weighed[c.P], locks.term(c)
  if not known or known.term ~= term then
    known = {term = term, so = redis.call('EXISTS', c.P .. 'weights') == 1}
    weighed[c.P] = known
  end
  return known.so
end

function shares.weight(c, group)
  local text = are_weighed(c) and redis.call('HGET', c.P .. 'weights', group)
  return text and tonumber(string.match(text, '^[%d.]+')) or 1
end

-- Sets a weight; text = as it is kept, nil = 1.
function shares.set_weight(c, group, text)
  if text then redis.call('HSET', c.P .. 'weights', group, text) else redis.call('HDEL', c.P .. 'weights', group) end
  weighed[c.P] = nil
end

-- The share of so many ms: µs, for whole numbers cost Redis least.
local function share_of(c, group, ms) return math.floor(ms * 1000 / shares.weight(c, group)) end

-- Adds to what is written of a group. A damaged number counts as 0: a claim must not fail for it.
local function increase(c, group, amount)
  local share = redis.pcall('HINCRBY', c.P .. 'shares', group, base.text_of(amount))
  if type(share) ~= 'table' then return share end
  redis.call('HDEL', c.P .. 'shares', group)
  return redis.call('HINCRBY', c.P .. 'shares', group, base.text_of(amount))
end

-- Writes a charge of a group: `own` is that of its last claim. Returns its share from now on.
local function add(c, class, group, amount, own)
  local share, least = increase(c, group, amount), of(floors, c)[class] or 0
  if share - amount < least then -- what it had used before it came is not written, or of classes that had not met
    share = least + amount
    redis.call('HSET', c.P .. 'shares', group, base.text_of(share))
  end
  of(reached, c)[class] = share - own
  return share
end

local function write_owed(c, class)
  local group, amount, own = unpack(owed[c.P][class])
  owed[c.P][class] = nil
  return add(c, class, group, amount, own)
end

local function share_so_far(c, class, group)
  local before = of(owed, c)[class]
  if before and before[1] == group then return write_owed(c, class) end
  return tonumber(redis.call('HGET', c.P .. 'shares', group) or 0)
end

-- The share with which a group comes to stand in a class where no other does: what it has used is not read.
function shares.enter_alone(c, class)
  local least = of(reached, c)[class]
  of(floors, c)[class] = least
  return least or 0
end

-- The share with which a group stands in a class beside others; at least `least`, where the class is.
function shares.enter(c, class, group, least)
  local share = share_so_far(c, class, group)
  if share >= least then return share end
  redis.call('HSET', c.P .. 'shares', group, base.text_of(least))
  return least
end

-- Where a class is; nil: the library was loaded since its last claim.
function shares.reached(c, class) return of(reached, c)[class] end

-- Writes what a group owes that stood in a class alone. Returns nil if none does.
function shares.settle(c, class) return of(owed, c)[class] and write_owed(c, class) end

-- Brings the classes of a node together at its first claim, and once what it serves has changed: what a group used
-- before it could meet the others does not count.
function shares.meet(c, node, served)
  if of(met, c)[node] then return end
  if noted_nodes >= MOST_MET then met, noted_nodes = {}, 0 end
  of(met, c)[node], noted_nodes = true, noted_nodes + 1
  local places, most = of(reached, c), 0
  for _, class in ipairs(served) do most = math.max(most, places[class] or 0) end
  for _, class in ipairs(served) do places[class], of(floors, c)[class] = most, most end
end

-- Notes that a node serves other classes or tasks than before.
function shares.part(c, node) of(met, c)[node] = nil end

-- Forgets a class that no node serves.
function shares.forget(c, class)
  if of(owed, c)[class] then write_owed(c, class) end
  of(reached, c)[class], of(floors, c)[class] = nil, nil
end

-- Takes classes along that have nothing ready: their time goes on with a claim of this class at one of their nodes.
function shares.take_along(c, class, idle)
  local places = of(reached, c)
  for _, other in ipairs(idle) do places[other] = math.max(places[other] or 0, places[class] or 0) end
end

-- Charges a claim. Returns the share with which the group stands in the class from now on; nil where it stands alone:
-- then it is written once another group comes, or is charged there. Few allocations: each one costs its part of the
-- collector's walk over the library.
function shares.charge(c, class, group, task, alone)
  local own, before = share_of(c, group, math.max(LEAST, usual_of(c, task))), of(owed, c)[class]
  if alone and before and before[1] == group then
    before[2], before[3] = before[2] + own, own
    return nil
  end
  if before then write_owed(c, class) end
  if not alone then return add(c, class, group, own, own) end
  owed[c.P][class] = {group, own, own}
end

-- True if a claim was charged what it took, or nearly, where a group stands alone in the class: that needs no
-- correction.
function shares.is_near(c, class, task, ms)
  local charged = math.max(LEAST, usual_of(c, task))
  local own = ms - charged
  return own == 0 or own < DOUBT and -own < DOUBT and of(owed, c)[class]
end

-- By how many ms a claim of a task that has ended was charged too little, and those before it; nil: by so little that
-- it does not count yet. Second value: this one alone.
function shares.miss(c, class, group, task, ms)
  local charged, alone = math.max(LEAST, usual_of(c, task)), of(owed, c)[class]
  local own = ms - charged
  local far = math.abs(own) >= math.max(DOUBT, charged * NEW)
  if own == 0 or alone and not far then return nil end
  local sums, place = of(missed, c), class .. '\n' .. group
  local sum = (sums[place] or 0) + own
  if far or math.abs(sum) >= DOUBT then
    if sums[place] then noted = noted - 1 end
    sums[place] = nil
    return sum, far and own
  end
  if not sums[place] then noted = noted + 1 end
  if noted > MOST_NOTED then
    missed, noted = {}, 0
  else
    sums[place] = sum
  end
end

-- Corrects a charge by so many ms. seen?: by how many ms this run differs from what its task usually takes. Returns the
-- group's share; nil where it stands alone.
function shares.correct(c, class, group, task, ms, seen)
  if seen then
    local before = usual_of(c, task)
    local known = math.max(LEAST, math.floor(before == UNKNOWN and before + seen or before + NEW * seen))
    usual[c.P][task] = known
    redis.call('HSET', c.P .. 'usual', task, base.text_of(known))
  end
  local before, more = of(owed, c)[class], share_of(c, group, ms)
  if before and before[1] == group then
    before[2] = before[2] + more
    return nil
  end
  return increase(c, group, more)
end

return shares
