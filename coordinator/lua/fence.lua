-- Shared: keys, and the number that orders all takings.
-- include base

local function keys_of(text)
  if not string.find(text, '\n', 1, true) then return {text} end
  local keys = {}
  for key in string.gmatch(text, '[^\n]+') do keys[#keys + 1] = key end
  return keys
end

-- max(last + 1, server time in µs): grows over restarts, cut files and failovers.
local function next_fence()
  local fence = time[1] .. string.format('%06d', time[2])
  local last = redis.call('SET', P .. 'fence', fence, 'GET')
  if last and (#last ~= #fence or last >= fence) and tonumber(last) >= tonumber(fence) then
    fence = string.format('%.0f', last + 1)
    redis.call('SET', P .. 'fence', fence)
  end
  return fence
end
