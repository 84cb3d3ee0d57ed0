-- Moves what waits in a broker queue into a node's own list, where it stays until it is settled. A message that is longer
-- than anybody may send is cut: whatever reads it after this reads a piece, and its size.
-- KEYS own takers lists…
--   own: list of the messages that the node took; takers: set of the nodes that took something; lists: the queue's
--   lists, the most urgent first
-- ARGV node tag most bytes longest
--   tag: never used before; most: entries in its list; bytes: no further message once so many were read
--   longest: bytes of a message that are kept
-- returns all that the node has taken, the oldest first, each '<tag>.<number> <message>', or
--   '<tag>.<number>/<size> <piece>' of one that was cut
local node, tag, most, bytes, longest = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function entry_of(name, message)
  if #message <= longest then return name .. ' ' .. message end
  return name .. '/' .. #message .. ' ' .. string.sub(message, 1, longest)
end

local found, read = redis.call('LRANGE', KEYS[1], 0, -1), 0
for place, entry in ipairs(found) do
  read = read + #entry
  if #entry > longest + 128 then -- a node of an older version took it whole
    local name, message = string.match(entry, '^([^ ]*) (.*)$')
    found[place] = entry_of(name, message)
    redis.pcall('LSET', KEYS[1], place - 1, found[place])
  end
end
local before = #found
for i = 3, #KEYS do
  while #found < most and read < bytes do
    local message = redis.call('LINDEX', KEYS[i], -1)
    if not message then break end
    local entry = entry_of(tag .. '.' .. #found, message)
    -- Written before it is removed: Redis may refuse to write (maxmemory), never to remove.
    if #found == before then redis.call('SADD', KEYS[2], node) end
    redis.call('RPUSH', KEYS[1], entry)
    redis.call('LTRIM', KEYS[i], 0, -2)
    table.insert(found, entry)
    read = read + #message
  end
end
return found
