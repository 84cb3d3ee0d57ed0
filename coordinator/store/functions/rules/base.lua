-- The context of one call. Nothing outlives the call: several installations share one library.
local base = {}

-- Milliseconds as text: a number that is given to a command costs as much again as most commands do.
function base.text_of(ms) return string.format('%d%03d', ms / 1000, ms % 1000) end

-- A field that is not there yet: the server's time.
local function look_up(c, name)
  if name == 'now_text' then
    c.now_text = base.text_of(c.now)
  else
    local time = redis.call('TIME')
    c.time, c.now = time, time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return rawget(c, name)
end

local context = {__index = look_up}

-- A second key says that the caller cannot publish doorbells: then the node's warden rings at its next look.
function base.context(keys)
  return setmetatable({
    P = keys[1], -- how all names of the installation begin
    delay = keys[2] and 0 or 2000, -- ms after which a node's warden rings a bell (again)
    rung = false, -- list of {node, bell}, which the caller publishes
    readied = false, -- list of jobs that became ready: one bell is rung for each at the end of the step
    direct = false, -- does the step take a job itself?
    fresh = false, -- the job made ready last, not written yet: a step that takes a job may take that one
    served = false, -- the class for which the step took a job or rang a bell
    tell_after = 0, -- ms after which another node may send the result and the links of a job that ends
    time = nil, now = nil, now_text = nil, -- as TIME gives it, in ms, as text: asked for when a step first needs one
  }, context)
end

-- Adds to one of the lists of the context.
function base.add(c, list, item)
  if c[list] then c[list][#c[list] + 1] = item else c[list] = {item} end
end

return base
