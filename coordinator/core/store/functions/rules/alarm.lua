-- The alarm: somebody looks at quotas just when the first of them lets its queue go on. A late look is made by whoever
-- claims next, or by the sweep: so the alarm of a server that is gone costs half a second.
local alarm = {}

local set = {} -- prefix -> {due, wake, waits}: the first score of `quotas-due`; the wake-up that is to look then; the
-- runner that waits for it itself

local AHEAD = 1000 -- ms before, from which on a node is woken for it
local LEAD = 6 -- ms that a wake-up may take to a runner, which waits for the rest
local WAITS = 20000 -- µs that an idle runner waits itself
local WAY = 200 -- µs that its request is under way
local MOST = 16 -- quotas that one look lets go on, and kinds of jobs for which it looks for a node

local function now(c) return c.now * 1000 + c.micros end

-- Lets the queues go on that are due. Returns how many there were.
function alarm.look(c, most)
  local till = string.format('%.0f', now(c))
  local names = redis.call('ZRANGEBYSCORE', c.P .. 'quotas-due', '-inf', till, 'LIMIT', 0, most)
  for _, q in ipairs(names) do
    redis.call('ZREM', c.P .. 'quotas-due', q)
    base.add(c, 'freed', q)
  end
  if names[1] then
    c.set_alarm = true
    admit.freed(c)
  end
  return #names
end

-- As `look`, for a runner that is about to claim. If that one waited for the alarm, another must: it may get a job.
function alarm.is_due(c, runner)
  local own = set[c.P]
  if not own then return end
  if own.due <= now(c) then return alarm.look(c, MOST) end
  if own.waits == runner then own.wake, own.waits, c.set_alarm = nil, nil, true end
end

-- Has an idle runner wait for the alarm if that is soon: returns µs and the wake-up to answer then, or nil.
function alarm.wait(c, node, runner)
  if c.set_alarm then alarm.set(c, node) end
  local own = set[c.P]
  local left = own and own.due - now(c)
  if not left or left > WAITS or own.waits then return nil end
  own.wake, own.waits = wakes.promise(c, node), runner
  return {base.text_of(math.max(0, math.ceil(left) - WAY)), own.wake}
end

-- Wakes a node for the first kind of jobs in a quota's queue that a node can run.
local function wake_for(c, q, delay)
  for _, kind in ipairs(queues.kinds(c, q, '+inf', 0, MOST)) do
    local _, task, class = queues.parts_of(kind)
    local wake = class and wakes.wake_best(c, class, task, delay)
    if wake then return wake end
  end
end

-- Sets the alarm to the first quota that is due. asking?: the node of a runner that is about to wait itself.
function alarm.set(c, asking)
  c.set_alarm = false
  local q, due = unpack(redis.call('ZRANGE', c.P .. 'quotas-due', 0, 0, 'WITHSCORES'))
  local own = set[c.P]
  if not q then
    set[c.P] = nil
    return
  end
  due = tonumber(due)
  if own and own.due == due and own.wake then return end
  local left = (due - now(c)) / 1000
  local soon = left <= AHEAD and not (asking and left * 1000 <= WAITS)
  set[c.P] = {due = due, wake = soon and wake_for(c, q, math.max(0, math.floor(left - LEAD)))}
end

return alarm
