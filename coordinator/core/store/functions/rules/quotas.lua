-- Quotas: numbers of units that jobs use while they run. A lane gives order, a quota a number.
--   quota:<q>         hash: limit, count, period, burst as declared; used; until, begun; alone: who uses all; tat: when
--                     its bucket is full again, when units were taken last, and how many; more: it has others of these
--                     than limit and used
--   quota-defaults    hash: prefix ("tenant/", "" = all) -> "limit count period burst act" for names not declared
--   quota-users:<q>   hash: id -> its units; `used` is their sum
--   quota-offers:<q>  sorted set: "<kind>\n\n<id>" of the ready jobs that nobody claimed yet, kinds as in
-- rules/queues.lua   quotas            sorted set: the names that are declared or in use, by their bytes
--   quotas-due        sorted set: names by the time in µs at which a rate or a cool-down lets their queue go on
-- Units and rate are taken at the claim, of all quotas of a job or of none. Until then a job in front of its lanes is
-- offered, as many of a kind as there are free units; who lacks a quota stands in its queue (rules/queues.lua):
-- first those that have units of it, then started jobs, then by priority and sequence. Nobody passes a job that lacks
-- units or rate. One that only waits since others of its kind are offered holds up no other kind: so units idle
-- for no job that no node can run, or whose nodes are full.
-- uses: a job's field, lines of "<units> <flags> <q>" in the order of names. units: * = all; flags: e = kept until the
-- job's end, o = the quota may be undeclared, - = none, and <count>/<period> where it is the rate limit of its task.
-- lack: the quota in whose queue it stands; lacked: since when.
local quotas = {}

local APART = 60000 -- ms after which a job that lacks one of several quotas has units of the others set apart
local MOST_NAMED = 16 -- offered jobs that an explanation names
local MOST_KINDS = 100 -- kinds of offers at which a lock looks
local SAMPLE, AUDITED = 100, 1000 -- users and offers of one quota, and of all with kinds, to look at in one sweep
local AGAIN = 1000 -- ms until another try where they were offered to others
local STARTED = 9007199254740992 -- puts started jobs before all others
local OF_TASK = 'the rate_limit of its task'
local NONE = {}

-- Splits the field `uses`.
local function split(text)
  local uses = {}
  for units, flags, name in string.gmatch(text, '(%S+) (%S+) ([^\n]+)') do
    uses[#uses + 1] = {name = name, all = units == '*', units = tonumber(units) or 1,
      stays = string.find(flags, 'e', 1, true), open = string.find(flags, 'o', 1, true),
      rate = string.match(flags, '%d+/%d+')}
  end
  return uses
end

local known, number, MOST_KNOWN = {}, 0, 1000 -- text -> its uses: a task has mostly the same ones, and tables are dear

-- The uses that a text says. Jobs share them: `quota` of each is what was read last, for a job that is looked at now.
function quotas.parse(text)
  local uses = known[text]
  if uses then return uses end
  if number >= MOST_KNOWN then known, number = {}, 0 end
  known[text], number = split(text), number + 1
  return known[text]
end

local function uses_of(job) return job.uses and quotas.parse(job.uses) or NONE end

-- The default that fits a name: of the longest prefix that ends in a slash, else of all names.
local function default_of(c, q)
  local prefixes, at = {''}, 0
  repeat
    at = string.find(q, '/', at + 1, true)
    if at then table.insert(prefixes, 1, string.sub(q, 1, at)) end
  until not at
  for i, text in ipairs(redis.call('HMGET', c.P .. 'quota-defaults', unpack(prefixes))) do
    if text then
      local limit, count, period, burst = string.match(text, '^(%d*) (%d*) (%d*) (%d*)')
      return prefixes[i], limit or '', count, period, burst -- a damaged one has no bounds
    end
  end
end

-- µs without silences: rates go by it.
local function uptime(c) return c.uptime * 1000 + c.micros end

-- Begins with an empty bucket after the server began: it may have lost the starts just before.
local function emptied(c, quota, begun, shown)
  local began = shown and redis.call('GET', c.P .. 'began') or not shown and locks.began(c)
  if not began or began == begun then return end
  quota.tat, quota.begun = math.max(quota.tat, tonumber(began) + quota.depth), began
end

-- The uptime in µs at which a bucket is full again. One that was declared anew since is at most empty: what its old
-- rate would have taken to fill does not hold up the new one.
local function full_at(text, quota)
  local tat, at, units = string.match(text or '', '^(%d+) ?(%d*) ?(%d*)$')
  if not tat then return 0 end
  if at == '' then return tonumber(tat) end
  return math.min(tonumber(tat), tonumber(at) + math.max(quota.burst, tonumber(units) or 0) * quota.step)
end

-- Reads a quota. known: declared, or by a default. step: µs of one unit; tat: the uptime in µs at which its bucket of
-- depth µs is full again (the generic cell rate algorithm). shown?: the step only reads.
function quotas.read(c, q, shown)
  local name = c.P .. 'quota:' .. q
  local limit, used, more = unpack(redis.call('HMGET', name, 'limit', 'used', 'more'))
  if limit and not more then -- as most are; each field that is read costs as much as a small command
    return {key = name, name = q, declared = limit, known = limit, limit = tonumber(limit) or math.huge,
      used = tonumber(used) or 0, unused = not used, tat = 0}
  end
  local count, period, burst, tat, closed, begun, alone =
    unpack(redis.call('HMGET', name, 'count', 'period', 'burst', 'tat', 'until', 'begun', 'alone'))
  local declared, prefix = limit, nil
  if not limit then prefix, limit, count, period, burst = default_of(c, q) end
  local quota = {key = name, name = q, declared = declared, known = limit, prefix = prefix,
    limit = tonumber(limit) or math.huge, used = tonumber(used) or 0, tat = 0,
    closed = closed and string.match(closed, '^%+?%d+$'),
    alone = alone, unused = not used,
    count = count, period = period}
  if tonumber(count or '') and tonumber(period) then
    quota.step = period * 1000 / count
    quota.burst = tonumber(burst) or 1
    quota.depth = quota.burst * quota.step
    quota.tat = full_at(tat, quota)
    emptied(c, quota, begun, shown)
  end
  return quota
end

-- How many units a job takes; all of a quota without a limit are one. While it has them nobody else gets any, also
-- where there are more since.
local function units_of(quota, use)
  if not use.all then return use.units end
  return quota.limit < math.huge and math.max(quota.limit, 1) or 1
end

-- ms until a cool-down ends; nil = there is none.
local function cooling(c, quota)
  if not quota.closed or base.is_past(c, quota.closed) then return nil end
  local own, ms = base.split(quota.closed)
  return ms - (own and c.now or c.wall)
end

-- Whether a job lacks units besides `offered` others. has: it has its units already. Second value: ms after which that
-- may be otherwise; nil = once units come back, or one of those is claimed.
local function lacks(c, quota, use, offered, has)
  local wait = cooling(c, quota)
  if wait then return true, wait end
  local units = units_of(quota, use)
  local over = quota.alone or quota.used + offered + units > quota.limit or use.all and quota.used + offered > 0
  if over and not has then return true end
  if not quota.step then return false end
  local now = uptime(c)
  wait = math.max(quota.tat, now) + math.min(units, quota.burst) * quota.step - quota.depth - now
  return wait + offered * quota.step > 0, wait > 0 and wait / 1000 or nil
end

-- The place of a job in the queue of a quota.
local function score_of(c, id, job)
  if job.taken then return job.taken - STARTED end
  local key = record.keys_of(job.keys)[1]
  local score = key and redis.call('ZSCORE', c.P .. 'line:' .. key, id)
  if not score or score == '-inf' then score = redis.call('HGET', job.name, 'score') end
  return tonumber(score) or 0
end

-- How a job uses a quota.
local function use_of(job, q)
  for _, use in ipairs(uses_of(job)) do
    if use.name == q then return use end
  end
end

local function kind_of(job, q) return queues.kind_of(job, use_of(job, q)) end

local function offer_of(job, use) return queues.kind_of(job, use) .. '\n\n' end

-- The units that were offered to jobs that a living node can run.
local function offered_units(c, quota)
  local offers, sum, from = c.P .. 'quota-offers:' .. quota.name, 0, '-'
  for _ = 1, MOST_KINDS do
    local first = redis.call('ZRANGEBYLEX', offers, from, '+', 'LIMIT', 0, 1)[1]
    if not first then break end
    local kind = string.match(first, '^(.*)\n\n[^\n]*$')
    local units, task, class = queues.parts_of(kind)
    from = '(' .. kind .. '\n\n\255' -- no text has this byte
    if classes.can_run(c, class, task) then
      local count = redis.call('ZLEXCOUNT', offers, '[' .. kind .. '\n\n', from)
      sum = sum + count * units_of(quota, {all = units == '*', units = tonumber(units)})
    end
  end
  return sum
end

-- The units that were offered to others of its kind, since these take one another's place, or at most so many where
-- even so there is room; for a lock in plain code the units of all, since it would always be faster than they.
local function offers(c, quota, job, use)
  if not job.class then return offered_units(c, quota) end
  local all, units = redis.call('ZCARD', c.P .. 'quota-offers:' .. quota.name), units_of(quota, use)
  if all == 0 or not use.all and not quota.step and quota.used + (all + 1) * units <= quota.limit then
    return all * units
  end
  local kind = offer_of(job, use)
  return units * redis.call('ZLEXCOUNT', c.P .. 'quota-offers:' .. quota.name, '[' .. kind, '(' .. kind .. '\255')
end

-- True if a job has units of a quota before its claim: they were set apart, or it keeps them until its end.
local function has_units(c, id, job, use)
  return (job.apart or use.stays) and redis.call('HEXISTS', c.P .. 'quota-users:' .. use.name, id) == 1
end

-- True if the first job of a kind holds up other kinds: it lacks units or rate, or may go on now. Else it only waits
-- since others of its kind are offered all that there is.
function quotas.holds_up(c, quota, id)
  local job = record.read(c, id)
  local use = job and use_of(job, quota.name)
  if not use then return false end
  if not job.class then return true end -- what a lock waits for is taken soon
  local has = has_units(c, id, job, use)
  return lacks(c, quota, use, 0, has) or not lacks(c, quota, use, offers(c, quota, job, use), has)
end

-- The job in the queue of a quota behind which this one waits; nil = none. Second value: ms after which it may look
-- again, where so many kinds stand before it that a step cannot look at all.
function quotas.ahead(c, quota, id, job)
  local q, passed = quota.name, NONE
  if queues.is_empty(c, q) then return nil end
  local going = c.going
  if going and going.q == q and going.used == quota.used then passed = going.passed end
  local own, place = kind_of(job, q), score_of(c, id, job)
  local kinds, first = queues.kinds(c, q, place, passed ~= NONE and going.count or 0, queues.MOST), nil
  for _, kind in ipairs(kinds) do
    first = queues.first(c, q, kind)
    if first == id then return nil end -- of two at one place, the kinds decide
    if kind == own or not passed[kind] and quotas.holds_up(c, quota, first) then return first end
  end
  if #kinds == queues.MOST then return first, AGAIN end
end

-- The first quota, in the order of names, of which the job lacks units or rate now: its index, and ms as `lacks`;
-- nil: it lacks none. offered?: true = others that were offered come first.
function quotas.lacking(c, id, job, offered)
  if job.phase == 'rollback' then return nil end
  for i, use in ipairs(uses_of(job)) do
    if not job.checked then use.quota = quotas.read(c, use.name) end
    local has = has_units(c, id, job, use)
    local ahead, again = nil, nil
    if not has then ahead, again = quotas.ahead(c, use.quota, id, job) end
    if ahead then return i, again end
    local short, wait = lacks(c, use.quota, use, offered and offers(c, use.quota, job, use) or 0, has)
    if short then return i, wait end
  end
end

-- Lets a quota's queue go on after so many ms: see rules/alarm.lua.
function quotas.look_after(c, q, ms)
  redis.call('ZADD', c.P .. 'quotas-due', 'LT', string.format('%.0f', c.now * 1000 + c.micros + ms * 1000), q)
  c.set_alarm = true
end

-- Notes that the queue of a quota may go on: at the end of the step, or before it takes a job (admit.freed).
local function freed(c, q) base.add(c, 'freed', q) end

-- Lists a quota among those in use.
local function list(c, quota)
  if quota.unused and not quota.declared then redis.call('ZADD', c.P .. 'quotas', '0', quota.name) end
end

local function take(c, id, use, units)
  local quota = use.quota
  redis.call('HSET', c.P .. 'quota-users:' .. use.name, id, base.text_of(units))
  local alone = use.all and {'alone', id, 'more', '1'} or NONE
  redis.call('HSET', quota.key, 'used', base.text_of(quota.used + units), unpack(alone))
  list(c, quota)
  quota.used = quota.used + units
end

local function give_back_one(c, id, use)
  local users = c.P .. 'quota-users:' .. use.name
  local units = use.all and redis.call('HGET', users, id) or use.units
  if redis.call('HDEL', users, id) == 0 then return end
  local left = redis.pcall('HINCRBY', c.P .. 'quota:' .. use.name, 'used', '-' .. units)
  if type(left) == 'table' then redis.call('HDEL', c.P .. 'quota:' .. use.name, 'used') end -- damaged: the sweep counts
  if use.all then redis.call('HDEL', c.P .. 'quota:' .. use.name, 'alone') end
  freed(c, use.name)
end

local function charge(c, use, units)
  local quota = use.quota
  if not quota.step then return end
  local now = uptime(c)
  quota.tat = math.max(quota.tat, now) + units * quota.step
  redis.call('HSET', quota.key, 'tat', string.format('%.0f %.0f %.0f', quota.tat, now, units))
  if quota.begun then redis.call('HSET', quota.key, 'begun', quota.begun) end
  if queues.is_empty(c, quota.name) then return end
  quotas.look_after(c, quota.name, math.max(0, quota.tat + quota.step - quota.depth - now) / 1000)
end

-- Takes units from those jobs that wait and for which they were set apart.
local function take_apart_back(c, q)
  for _, id in ipairs(redis.call('HKEYS', c.P .. 'quota-users:' .. q)) do
    local job = record.read(c, id)
    for _, use in ipairs(job and job.apart and job.lack and uses_of(job) or NONE) do
      if use.name == q and not (use.stays and job.taken) then give_back_one(c, id, use) end
    end
  end
end

-- Sets units apart that nobody else was offered: of the quotas that come before the one that it lacks.
local function set_apart(c, id, job, index)
  local uses = uses_of(job)
  for i = 1, index - 1 do
    local quota, units = uses[i].quota, uses[i].quota and units_of(uses[i].quota, uses[i])
    local has = not quota or redis.call('HEXISTS', c.P .. 'quota-users:' .. uses[i].name, id) == 1
    if not has and quota.used + units + offered_units(c, quota) > quota.limit then
      quotas.look_after(c, job.lack, AGAIN)
    elseif not has then
      take(c, id, uses[i], units)
      redis.call('HSET', job.name, 'apart', 1)
      job.apart = '1'
    end
  end
end

local function leave_queue(c, id, job)
  if not job.lack then return end
  queues.remove(c, job.lack, id, kind_of(job, job.lack))
  redis.call('HDEL', job.name, 'lack')
  if not c.going or c.going.q ~= job.lack then freed(c, job.lack) end -- else the step looks at the next one anyway
  job.lack = nil
end

-- Puts a job into the queue of the quota that it lacks. After a minute, it has the units set apart of those that come
-- before in the order of names: so no two jobs wait for each other. Who keeps units until its end goes before those.
function quotas.queue(c, id, job, index, wait)
  local uses = uses_of(job)
  local q, since = uses[index].name, tonumber(job.lacked) or c.now
  if job.lack ~= q then leave_queue(c, id, job) end
  local score, keeps = score_of(c, id, job), false
  for _, use in ipairs(uses) do
    local has = has_units(c, id, job, use)
    keeps = keeps or has and use.stays and job.taken
    if has and use.name == q then score = score - STARTED end
  end
  queues.add(c, q, id, queues.kind_of(job, uses[index]), score)
  list(c, uses[index].quota)
  redis.call('HSET', job.name, 'lack', q, 'lacked', base.text_of(since), 'seldom',
    job.light and not job.taken and record.LACKS or '1')
  job.lack, job.lacked = q, since
  if wait then quotas.look_after(c, q, wait) end
  if #uses == 1 then return end
  if keeps then take_apart_back(c, q) end
  if c.now - since < APART then return quotas.look_after(c, q, since + APART - c.now) end
  set_apart(c, id, job, index)
end

-- Notes in its quotas that a job is ready.
function quotas.offer(c, id, job)
  if job.phase == 'rollback' then return end
  for _, use in ipairs(uses_of(job)) do
    if not has_units(c, id, job, use) then
      redis.call('ZADD', c.P .. 'quota-offers:' .. use.name, '0', offer_of(job, use) .. id)
    end
  end
end

-- True if the job lacks a quota, and stands in its queue now. Else it is offered: the caller makes it ready.
function quotas.hold_back(c, id, job)
  if not job.uses then return false end
  local index, wait = quotas.lacking(c, id, job, true)
  if index then
    quotas.queue(c, id, job, index, wait)
    return true
  end
  leave_queue(c, id, job)
  quotas.offer(c, id, job)
  return false
end

-- Takes back the offer of a job that was ready, and its place in a queue. Its task and class are those of the offer.
function quotas.take_back(c, id, job)
  for _, use in ipairs(uses_of(job)) do
    local offered = job.class and redis.call('ZREM', c.P .. 'quota-offers:' .. use.name, offer_of(job, use) .. id)
    if offered == 1 then freed(c, use.name) end
  end
  leave_queue(c, id, job)
end

-- So, too, for a job that does not have its turn any more: then it keeps no units that were set apart.
function quotas.withdraw(c, id, job)
  quotas.take_back(c, id, job)
  if not job.lacked then return end
  if job.apart then quotas.give_back(c, id, job, not job.taken) end
  redis.call('HDEL', job.name, 'lacked', 'apart')
  job.lacked, job.apart = nil, nil
end

-- Takes the units and the rate of all quotas, after `lacking` found that none is lacked.
function quotas.take(c, id, job)
  for _, use in ipairs(job.phase == 'rollback' and NONE or uses_of(job)) do
    if job.class then redis.call('ZREM', c.P .. 'quota-offers:' .. use.name, offer_of(job, use) .. id) end
    local units = units_of(use.quota, use)
    if not has_units(c, id, job, use) then take(c, id, use, units) end
    charge(c, use, units)
  end
  if not job.lacked then return end
  redis.call('HDEL', job.name, 'lacked', 'apart')
  job.lacked, job.apart = nil, nil
end

-- Takes the units again for a holder that was taken for lost: the one case in which more units are used than there are.
function quotas.take_again(c, id, job)
  if job.phase == 'rollback' then return end
  for _, use in ipairs(uses_of(job)) do
    if redis.call('HEXISTS', c.P .. 'quota-users:' .. use.name, id) == 0 then
      use.quota = quotas.read(c, use.name)
      take(c, id, use, units_of(use.quota, use))
      if use.quota.used > use.quota.limit then history.tally(c, 'quotas_exceeded') end
    end
  end
end

-- Forgets a quota that is neither declared nor in use.
local function forget(c, q)
  local quota = quotas.read(c, q)
  if quota.declared or quota.used > 0 or quota.step and quota.tat > uptime(c) or cooling(c, quota) then return end
  if not queues.is_empty(c, q) or redis.call('EXISTS', c.P .. 'quota-offers:' .. q) == 1 then return end
  redis.call('DEL', quota.key, c.P .. 'quota-users:' .. q)
  redis.call('ZREM', c.P .. 'quotas', q)
end

-- Gives back the units of a job, wherever its locks are released. ended?: also those that it keeps until its end. A
-- repeated call gives back nothing.
function quotas.give_back(c, id, job, ended)
  for _, use in ipairs(uses_of(job)) do
    if ended or not use.stays then give_back_one(c, id, use) end
  end
end

-- Closes a quota until an instant (base.instant), at least until what was there. act: the text that the quota keeps.
-- Returns until when it is closed.
function quotas.cool_down(c, q, till, act)
  local quota = quotas.read(c, q)
  local before, own, ms = cooling(c, quota) or 0, base.split(till)
  if ms - (own and c.now or c.wall) <= before then return quota.closed end
  redis.call('HSET', quota.key, 'until', till, 'cooled', act, 'more', 1)
  redis.call('ZADD', c.P .. 'quotas', '0', q)
  quotas.look_after(c, q, ms - (own and c.now or c.wall))
  return till
end

-- What people see of a quota: as it is declared (units, count, period, burst, act), '' where it is not; the prefix of
-- its default, or false; units in use and their users; how many jobs wait; ms until its rate lets the next unit go, and
-- until its cool-down ends; the act that closed it.
function quotas.shown(c, q)
  local quota, now = quotas.read(c, q, true), uptime(c)
  local declared, cooled = unpack(redis.call('HMGET', quota.key, 'by', 'cooled'))
  local rate = quota.step and math.max(quota.tat, now) + quota.step - quota.depth - now or 0
  return {quota.limit < math.huge and quota.limit or '', quota.count or '', quota.period or '',
    quota.burst and base.text_of(quota.burst) or '',
    declared or '', quota.prefix or false, quota.used, redis.call('HLEN', c.P .. 'quota-users:' .. q),
    queues.count(c, q), math.max(0, math.ceil(rate / 1000)), cooling(c, quota) or 0,
    cooled or ''}
end

-- How many jobs stand before one in the queue of a quota; nil: it is not there.
function quotas.rank(c, q, id, job) return queues.rank(c, q, id, kind_of(job, q)) end

-- How a job waits in the queue of a quota: how many stand before it, behind which one it waits ('' = none), and some
-- jobs of its kind that are offered.
function quotas.place(c, q, id)
  local job = record.read(c, id)
  local rank = job and quotas.rank(c, q, id, job)
  if not rank then return {0, '', {}} end
  local found = {}
  if job.class then
    local from = offer_of(job, use_of(job, q))
    local all, till = c.P .. 'quota-offers:' .. q, '(' .. from .. '\255'
    local alike = redis.call('ZRANGEBYLEX', all, '[' .. from, till, 'LIMIT', 0, MOST_NAMED)
    for _, offer in ipairs(alike) do found[#found + 1] = string.match(offer, '[^\n]*$') end
  end
  return {rank, quotas.ahead(c, quotas.read(c, q, true), id, job) or '', found}
end

-- How many units are missing to a job that nobody holds up; 0: it waits for none.
function quotas.missing(quota, job)
  local use = use_of(job, quota.name)
  if not use then return 0 end
  return math.max(quota.alone and 1 or 0, use.all and quota.used or quota.used + use.units - quota.limit)
end

-- True if a job is of this kind in a quota.
function quotas.is_of(job, q, kind) return kind_of(job, q) == kind end

-- True if a job gives its units of a quota back when it parks.
function quotas.gives_back(c, id, q)
  local job = record.read(c, id)
  local use = job and use_of(job, q)
  return use and not use.stays
end

-- Another task or class for a job that waits in a queue.
function quotas.retarget(c, id, job, task, class)
  if not job.lack then return end
  local use = use_of(job, job.lack)
  queues.change(c, job.lack, id, queues.kind_of(job, use), queues.kind_of({task = task, class = class}, use))
  freed(c, job.lack)
end

-- Declares the rate limit of a task, unless somebody declared that quota otherwise.
local function declare_rate(c, use)
  local name, count, period = c.P .. 'quota:' .. use.name, string.match(use.rate, '^(%d+)/(%d+)$')
  local by, before, span = unpack(redis.call('HMGET', name, 'by', 'count', 'period'))
  if by and (not string.find(by, OF_TASK, 1, true) or before == count and span == period) then return end
  local act = cjson.encode({why = OF_TASK, by = 'celery', at = c.wall})
  redis.call('HSET', name, 'limit', '', 'count', count, 'period', period, 'burst', 1, 'by', act, 'more', 1)
  redis.call('ZADD', c.P .. 'quotas', '0', use.name)
end

-- Why these uses cannot be: a quota that nobody declared, or more units than there are. Its name, and the number.
function quotas.refusal(c, job)
  job.checked = true -- what was read is as it is in this step
  for _, use in ipairs(uses_of(job)) do
    if use.rate then declare_rate(c, use) end
    local quota = quotas.read(c, use.name)
    use.quota = quota
    if not quota.known and not use.open then return 'undeclared', use.name, 0 end
    if not use.all and quota.limit > 0 and use.units > quota.limit then return 'too_many', use.name, quota.limit end
  end
end

-- True if a record still has a right to its units.
local function uses_units(c, id, q)
  local job = record.read(c, id)
  if not job or not job.uses or states.TERMINAL[job.state] then return false end
  if job.state == 'running' or job.apart then return true end
  for _, use in ipairs(uses_of(job)) do
    if use.name == q and use.stays then return job.taken end
  end
end

local function audit_offers(c, q, members)
  for _, offer in ipairs(members) do
    local state = redis.call('HGET', c.P .. 'job:' .. string.match(offer, '[^\n]*$'), 'state')
    if state ~= 'ready' then redis.call('ZREM', c.P .. 'quota-offers:' .. q, offer) end
  end
end

-- Counts the used units anew where their number is damaged.
local function mend_used(c, q)
  local name, sum = c.P .. 'quota:' .. q, 0
  local used = redis.call('HGET', name, 'used')
  if not used or string.match(used, '^%-?%d+$') then return end
  for _, units in ipairs(redis.call('HVALS', c.P .. 'quota-users:' .. q)) do sum = sum + (tonumber(units) or 1) end
  redis.call('HSET', name, 'used', base.text_of(sum))
  history.tally(c, 'quotas_repaired')
end

-- Looks at some users and offers of a quota that has too many for one step.
local function audit_some(c, q)
  mend_used(c, q)
  local users = redis.call('HRANDFIELD', c.P .. 'quota-users:' .. q, SAMPLE, 'WITHVALUES')
  for i = 1, #users, 2 do
    if not uses_units(c, users[i], q) then
      redis.call('HDEL', c.P .. 'quota-users:' .. q, users[i])
      redis.call('HINCRBY', c.P .. 'quota:' .. q, 'used', '-' .. (tonumber(users[i + 1]) or 1))
      history.tally(c, 'quotas_repaired')
    end
  end
  audit_offers(c, q, redis.call('ZRANDMEMBER', c.P .. 'quota-offers:' .. q, SAMPLE))
  freed(c, q)
end

-- Compares the used units with their users, and repairs what differs.
local function audit_one(c, q)
  local users, sum = redis.call('HGETALL', c.P .. 'quota-users:' .. q), 0
  for i = 1, #users, 2 do
    if uses_units(c, users[i], q) then
      sum = sum + (tonumber(users[i + 1]) or 1)
    else
      redis.call('HDEL', c.P .. 'quota-users:' .. q, users[i])
    end
  end
  local used, alone = unpack(redis.call('HMGET', c.P .. 'quota:' .. q, 'used', 'alone'))
  if sum ~= (tonumber(used) or 0) then
    redis.call('HSET', c.P .. 'quota:' .. q, 'used', base.text_of(sum))
    history.tally(c, 'quotas_repaired')
  end
  if alone and redis.call('HEXISTS', c.P .. 'quota-users:' .. q, alone) == 0 then
    redis.call('HDEL', c.P .. 'quota:' .. q, 'alone')
  end
  audit_offers(c, q, redis.call('ZRANGE', c.P .. 'quota-offers:' .. q, 0, -1))
  freed(c, q)
  forget(c, q)
end

-- Audits the next `most` quotas behind a name. Returns the last name; '' = at the end.
function quotas.audit(c, after, most)
  local names = redis.call('ZRANGEBYLEX', c.P .. 'quotas', after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, most)
  local left = AUDITED
  for _, q in ipairs(names) do
    base.guarded('quota ' .. q, function()
      local count = redis.call('HLEN', c.P .. 'quota-users:' .. q) + redis.call('ZCARD', c.P .. 'quota-offers:' .. q)
      left = left - math.min(count, 2 * SAMPLE) - queues.count_kinds(c, q)
      if count > 2 * SAMPLE then audit_some(c, q) else audit_one(c, q) end
    end)
    if left <= 0 then return q end
  end
  return #names == most and names[most] or ''
end

return quotas
