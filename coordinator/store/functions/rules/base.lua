-- The context of one call: nothing outlives the call, since several installations share one library.
local base = {}

-- Milliseconds as text: a number that is given to a command costs as much again as most commands do.
function base.text_of(ms) return string.format('%d%03d', ms / 1000, ms % 1000) end

base.AGAIN = 2000 -- ms after which a node's warden rings a bell (again)

local RESOLUTION = 500 -- how far what is written of the clock may lie behind it, and how much a silence counts
local silences = {} -- prefix -> the longest time in ms, since the last fence, between two notes of the clock

-- clock = "last offset uptime away gap", all in ms.
local function write_clock(c)
  redis.call('SET', c.P .. 'clock', string.format('%.0f %.0f %.0f %.0f %.0f', c.now, c.offset, c.uptime, c.away, c.gap))
end

local function read_clock(c)
  local time = redis.call('TIME')
  local wall = time[1] * 1000 + math.floor(time[2] / 1000)
  local known = redis.call('GET', c.P .. 'clock')
  local last, offset, uptime, away, gap = string.match(known or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  c.wall, c.micros, c.offset, c.away, c.gap = wall, time[2] % 1000, offset or 0, away or 0, tonumber(gap or 2000)
  -- Spans go by the installation's clock: where the server fell behind what was seen, the offset makes up for it.
  local passed = last and wall + c.offset - last or RESOLUTION
  if passed < 0 then c.offset = c.offset - passed end
  c.now = wall + c.offset
  -- Leases go by the uptime: where nobody took a step for so long the server was away, or its clock went forward. Then
  -- its holders have time to come back, and it counts on from there.
  c.uptime = math.max(uptime or 0, c.now - c.away)
  if passed > c.gap then
    c.uptime = uptime + RESOLUTION
    c.away = c.now + c.gap - c.uptime
  end
  if passed < 0 or passed >= RESOLUTION then
    silences[c.P] = math.max(silences[c.P] or 0, last and passed or 0)
    write_clock(c)
  end
end

-- The longest silence before this call, in ms, since it was asked for: while nobody noted the clock here.
function base.silence(c)
  local longest = silences[c.P] or 0
  silences[c.P] = nil
  return longest
end

-- A silence that is longer ends no lease.
function base.keep_gap(c, gap)
  if c.gap == gap then return end
  c.gap = gap
  write_clock(c)
end

-- A field that is not there yet.
local function look_up(c, name)
  if name == 'now_text' then
    c.now_text = base.text_of(c.now)
  else
    read_clock(c)
  end
  return rawget(c, name)
end

-- An instant as callers give it: ms since the epoch, which people named, or '+<ms>' from now. As it is kept:
-- '+<instant>' goes by the installation's clock, another by the wall clock.
function base.instant(c, given)
  local span = string.match(given, '^%+(%d+)')
  return span and '+' .. base.text_of(c.now + span) or given
end

-- Of an instant as it is kept: does it go by the installation's clock? Its number.
function base.split(instant)
  local own = string.byte(instant) == 43
  return own, own and string.sub(instant, 2) or instant
end

function base.is_past(c, instant)
  local own, ms = base.split(instant)
  return tonumber(ms) <= (own and c.now or c.wall)
end

local context = {__index = look_up}

-- A second key says that the caller cannot publish doorbells: then the node's warden rings at its next look.
function base.context(keys)
  return setmetatable({
    P = keys[1], -- how all names of the installation begin
    delay = keys[2] and 0 or base.AGAIN, -- ms after which the warden rings again what the caller publishes
    rung = false, -- list of {node, bell}, which the caller publishes
    readied = false, -- list of jobs that became ready: one bell is rung for each at the end of the step
    direct = false, -- does the step take a job itself?
    fresh = false, -- the job made ready last, not written yet: a step that takes a job may take that one
    alone = false, -- the first job of weight `all` in each line with a mark, as far as it was looked for
    served = false, -- the class for which the step took a job or rang a bell
    more = 0, -- 1: the sweep has more to do than one step may
    asking = false, -- the waiter for a lock that asks in this very step
    passed = 0, -- how many waiters for a lock the step took for dead
    tell_after = 0, -- ms after which another node may send the result and the links of a job that ends
    -- Asked for when a step first needs one, in ms: the installation's clock, the server's, the time of the
    -- installation without its silences; the µs of the server beyond them.
    now = nil, now_text = nil, wall = nil, uptime = nil, micros = nil,
  }, context)
end

-- Adds to one of the lists of the context.
function base.add(c, list, item)
  if c[list] then c[list][#c[list] + 1] = item else c[list] = {item} end
end

return base
