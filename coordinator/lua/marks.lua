-- Shared: marks stand in front of a line, at -inf; no job has such an id. PAUSED: nothing of it starts. LIMIT: another
-- number than one may run at once. In a line with a mark whoever was started is pinned at -inf too, and so is counted.
-- include base
local PAUSED, LIMIT = '\1paused', '\1limit'

local function is_mark(id) return string.byte(id) == 1 end

-- limits: key -> n, then JSON of who set it.
local function limit_of(key)
  local set = redis.call('HGET', P .. 'limits', key)
  return set and tonumber(string.match(set, '^%d+')) or 1
end
