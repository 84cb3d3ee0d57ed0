-- Shared: versioned documents that every member of a replica set has on its disk, or none has.
-- pointer:<doc> = "<version> <sha>" is what is committed, document:<doc> its entries, entry -> "<fence> <JSON>" (null =
-- removed). asked:<doc> lists updates that wait, prepare:<doc> is the version under way, acked:<doc> who has it on disk.
-- server:<doc> is the run of Redis that served last; while grace:<doc> lives, no version is begun.
-- include fence

local function pointer_of(doc)
  return string.match(redis.call('GET', P .. 'pointer:' .. doc) or '0 -', '^(%d+) (%S+)$')
end

local function wake(id, outcome)
  redis.call('RPUSH', P .. 'told:' .. id, outcome)
  redis.call('PEXPIRE', P .. 'told:' .. id, 60000)
end

local function tell(id, outcome)
  redis.call('SET', P .. 'update:' .. id, outcome, 'PX', 3600000)
  wake(id, outcome)
end

local function be_gracious(doc) redis.call('SET', P .. 'grace:' .. doc, 1, 'PX', 1500, 'NX') end

-- A Redis that was started anew, or emptied, may have lost its end: members get time to say what lies on their disks,
-- from the first call on; what is left of the time that an earlier start gave is not counted.
local function settled(doc)
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if redis.call('GET', P .. 'server:' .. doc) == run then return true end
  redis.call('SET', P .. 'server:' .. doc, run)
  redis.call('DEL', P .. 'grace:' .. doc)
  be_gracious(doc)
end
