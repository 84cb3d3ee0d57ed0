-- Shared: fences, and locks, the leases of the processes that act now.
-- include ring

local function keys_of(text)
  local keys = {}
  for key in string.gmatch(text, '[^\n]+') do keys[#keys + 1] = key end
  return keys
end

-- max(last + 1, server time in µs): grows over restarts, cut files and failovers.
local function next_fence()
  local fence = string.format('%.0f', time[1] * 1000000 + time[2])
  local last = redis.call('SET', P .. 'fence', fence, 'GET')
  if last and tonumber(last) >= tonumber(fence) then
    fence = string.format('%.0f', last + 1)
    redis.call('SET', P .. 'fence', fence)
  end
  return fence
end

-- All locks or none.
local function lock_all(keys, token, ttl)
  for i, key in ipairs(keys) do
    if not redis.call('SET', P .. 'lock:' .. key, token, 'NX', 'PX', ttl) then
      for j = 1, i - 1 do redis.call('DEL', P .. 'lock:' .. keys[j]) end
      return false
    end
  end
  return true
end

local function unlock_all(keys, token)
  for _, key in ipairs(keys) do
    if redis.call('GET', P .. 'lock:' .. key) == token then redis.call('DEL', P .. 'lock:' .. key) end
  end
end

-- A lock in plain code is granted where it stands: its runner is the process that waits for it. Returns its fence.
local function grant(id, keys, token, ttl)
  if not lock_all(keys, token, ttl) then return end
  redis.call('ZADD', P .. 'locks', now + ttl, id)
  return next_fence()
end
