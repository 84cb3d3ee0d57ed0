-- The context `c` of one call, and the clocks. State that outlives a call is kept by prefix, since several
-- installations share one library.
local base = {}

-- Writes a whole number as text. Redis converts a number in a command so slowly that it doubles the cost of most
-- commands.
function base.text_of(number) return string.format('%d', number) end

local RESOLUTION = 500 -- ms: the stored clock may be this old, and a silence counts as this long
local SHOWN = 7 * 24 * 3600000 -- ms for which people can see the silence before a server's first step
local FIRST = {offset = 0, uptime = 0, away = 0, gap = 2000} -- of an installation without a clock
local clocks = {} -- prefix -> the stored clock: its text and its numbers, so that each text is parsed once
local looked = {} -- prefix -> when this server last read its clock for a step
local rested = {} -- prefix -> true: this server ran no step for RESOLUTION since `has_rested` was called last

-- clock = "last offset uptime away gap", all in ms.
local function write_clock(c)
  redis.call('SET', c.P .. 'clock', string.format('%d %d %d %d %d', c.now, c.offset, c.uptime, c.away, c.gap))
end

local function parsed(text)
  local last, offset, uptime, away, gap = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not last then return FIRST end
  return {text = text, last = tonumber(last), offset = tonumber(offset), uptime = tonumber(uptime),
    away = tonumber(away), gap = tonumber(gap)}
end

local function stored_clock(c)
  local text, clock = c.clock, clocks[c.P]
  if not text then return FIRST end
  if not clock or clock.text ~= text then
    clock = parsed(text)
    clocks[c.P] = clock
  end
  return clock
end

local function read_clock(c)
  local time, stored = redis.call('TIME'), stored_clock(c)
  local wall = time[1] * 1000 + math.floor(time[2] / 1000)
  local offset, uptime = stored.offset, stored.uptime
  -- Spans go by the installation's clock: if the server's clock went back, the offset makes up for it.
  local passed = stored.last and wall + offset - stored.last or RESOLUTION
  if passed < 0 then offset = offset - passed end
  local now = wall + offset
  c.wall, c.micros, c.now, c.offset, c.away, c.gap = wall, time[2] % 1000, now, offset, stored.away, stored.gap
  -- Leases go by the uptime. After a silence longer than `gap` the server was away, or its clock jumped forward: the
  -- uptime then counts only RESOLUTION of it, so that the holders of leases have time to come back.
  c.uptime = math.max(uptime, now - c.away)
  if passed > c.gap then
    c.uptime = uptime + RESOLUTION
    c.away = now + c.gap - c.uptime
    if not looked[c.P] then
      redis.call('SET', c.P .. 'silence', string.format('%d %d', wall - passed, wall), 'PX', SHOWN)
    end
  end
  if passed < 0 or passed >= RESOLUTION then write_clock(c) end
  if math.abs(wall - (looked[c.P] or 0)) >= RESOLUTION then rested[c.P] = true end
  looked[c.P] = wall
end

-- True if this server ran no step for a while since the last call of this: another server may have run some meanwhile.
function base.has_rested(c)
  local so = rested[c.P]
  rested[c.P] = nil
  return so
end

-- Stores the longest silence that still counts towards the ends of leases.
function base.keep_gap(c, gap)
  if c.gap == gap then return end
  c.gap = gap
  write_clock(c)
end

-- Converts an instant from a caller's form (ms since the epoch, or '+<ms>' from now) to the stored form: '+<instant>'
-- goes by the installation's clock; without a plus it goes by the wall clock.
function base.instant(c, text)
  local span = string.match(text, '^%+(%d+)')
  return span and '+' .. base.text_of(c.now + span) or text
end

-- For a stored instant: true if it goes by the installation's clock; then its number.
function base.split(instant)
  local own = string.byte(instant) == 43
  return own, own and string.sub(instant, 2) or instant
end

function base.is_past(c, instant)
  local own, ms = base.split(instant)
  return tonumber(ms) <= (own and c.now or c.wall)
end

-- What a step begins with; it writes another value into its context.
local DEFAULTS = {
  readied = false, -- list of jobs that became ready: the step wakes a node for each at its end
  direct = false, -- true: the step takes a job itself
  fresh = false, -- the last job that became ready, not written yet: a step that takes a job may take this one
  crowded = false, -- the job that was shifted last stood beside other groups
  beside = false, -- the node that claims has several classes
  occupied = false, -- true: a claim of this step took one slot more
  set_alarm = false, -- true: `quotas-due` has changed
  empty = false, -- quotas -> true: nobody stands in the queue
  going = false, -- the quota of which the step lets the queue go on: see rules/admit.lua
  freed = false, -- list of quotas whose queue may go on, since units came back
  begin_known = false, -- true: this step knows when the server began
  served = false, -- the class for which the step took a job or woke a node
  more = 0, -- 1: the sweep has more to do than one step may
  asking = false, -- the waiter for a lock that called this step
  paused = false, -- since when the lane that this step resumes was paused
  ended = false, -- true: causes have ended whose dependants are not told yet
  told = 0, -- number of dependants that the step told of the ends of their causes
  passed = 0, -- number of dead waiters for locks that the step removed
  tell_after = 0, -- ms after which another node may send the results and links of jobs that end in this step
}

-- The times are read when a step first needs one, in ms: `now`, the installation's clock, and `now_text`, the same as
-- text; `wall`, the server's clock; `uptime`, the time without silences; `micros`, the µs of the server's clock beyond
-- the ms.
local function look_up(c, name)
  local default = DEFAULTS[name]
  if default ~= nil then return default end
  if name == 'now_text' then
    c.now_text = base.text_of(c.now)
  else
    read_clock(c)
  end
  return rawget(c, name)
end

local context = {__index = look_up}

-- Creates the context. P: the prefix of all keys of the installation; clock, format: as Redis has them now.
function base.context(keys)
  local P = keys[1]
  local kept = redis.call('MGET', P .. 'clock', P .. 'format')
  return setmetatable({P = P, clock = kept[1], format = kept[2]}, context)
end

-- Calls `act` and logs its error, so that one damaged record does not stop a step for other jobs. True: no error.
-- What an ACL refuses is no fault of the record and ends the step.
function base.guarded(id, act)
  local good, why = pcall(act)
  if good then return true end
  local text = tostring(why.err or why)
  for _, refusal in ipairs({'ACL failure', 'user executing the script'}) do -- the second is Redis 7.0's
    if string.find(text, refusal, 1, true) then error(text) end
  end
  redis.warn('job ' .. id .. ': ' .. text)
  return false
end

-- Appends to a list of the context.
function base.add(c, list, item)
  if c[list] then c[list][#c[list] + 1] = item else c[list] = {item} end
end

return base
