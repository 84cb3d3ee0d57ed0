-- Shared: how all names begin, what time it is, and whom the caller is to wake.
local P = KEYS[1]
local time, rung = redis.call('TIME'), {} -- rung: {node, bell} pairs, which the caller publishes
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Milliseconds as text: a number that is handed to a command costs as much again as most commands do.
local function text_of(ms) return string.format('%d%03d', ms / 1000, ms % 1000) end
local now_text = text_of(now)
