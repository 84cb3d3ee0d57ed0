-- Moves what waits in a broker queue into a node's own list, where it stays until it is settled.
-- KEYS own takers lists…
--   own: list of the messages that the node took; takers: set of the nodes that took something; lists: the queue's
--   lists, the most urgent first
-- ARGV node tag most bytes
--   tag: never used before; most: entries in its list; bytes: no further message once so many are there
-- returns all that the node has taken, the oldest first, each '<tag>.<number> <message>'
local node, tag, most, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found, size = redis.call('LRANGE', KEYS[1], 0, -1), 0
for _, entry in ipairs(found) do size = size + #entry end
local before = #found
for i = 3, #KEYS do
  while #found < most and size < bytes do
    local message = redis.call('LINDEX', KEYS[i], -1)
    if not message then break end
    local entry = tag .. '.' .. #found .. ' ' .. message
    -- Written before it is removed: Redis may refuse to write (maxmemory), never to remove.
    if #found == before then redis.call('SADD', KEYS[2], node) end
    redis.call('RPUSH', KEYS[1], entry)
    redis.call('RPOP', KEYS[i])
    table.insert(found, entry)
    size = size + #entry
  end
end
return found
