-- Shared: versioned documents that every member of a replica set has on its disk, or none has.
-- pointer:<doc> = "<version> <sha>" is what is committed, document:<doc> its entries, entry -> "<fence> <JSON>" (null =
-- removed). asked:<doc> lists updates that wait, prepare:<doc> is the version under way, acked:<doc> who has it on disk.
-- include fence

local function pointer_of(doc)
  return string.match(redis.call('GET', P .. 'pointer:' .. doc) or '0 -', '^(%d+) (%S+)$')
end

local function tell(id, outcome)
  redis.call('SET', P .. 'update:' .. id, outcome, 'PX', 3600000)
  redis.call('RPUSH', P .. 'told:' .. id, outcome)
  redis.call('PEXPIRE', P .. 'told:' .. id, 60000)
end

-- Why an update may not be: a greater fence was seen, or an entry is not as its author read it. `seen`: by entry, those
-- of updates before it. A change is {entry, JSON, fence as read or ''}.
local function objection(doc, update, seen)
  for _, change in ipairs(update.changes) do
    local entry = change[1]
    local fence = seen[entry] or string.match(redis.call('HGET', P .. 'document:' .. doc, entry) or '0', '^%d+')
    if tonumber(update.fence) < tonumber(fence) then return 'stale ' .. fence .. ' ' .. entry end
    if change[3] ~= '' and change[3] ~= fence then return 'changed ' .. fence .. ' ' .. entry end
  end
end

-- All that was asked for, in order, becomes the next version, unless one is under way.
local function prepare(doc)
  local asked, under_way = P .. 'asked:' .. doc, P .. 'prepare:' .. doc
  while redis.call('EXISTS', under_way, P .. 'grace:' .. doc) == 0 and redis.call('EXISTS', asked) == 1 do
    local seen, updates = {}, {}
    for _, text in ipairs(redis.call('LRANGE', asked, 0, 255)) do
      local update = cjson.decode(text)
      local refused = objection(doc, update, seen)
      if refused then
        tell(update.id, refused)
      else
        for _, change in ipairs(update.changes) do seen[change[1]] = update.fence end
        updates[#updates + 1] = text
      end
    end
    redis.call('LTRIM', asked, 256, -1)
    if updates[1] then
      redis.call('HSET', under_way, 'version', next_fence(), 'base', pointer_of(doc), 'begun', now_text,
        'updates', '[' .. table.concat(updates, ',') .. ']')
      redis.call('PUBLISH', P .. 'replica:' .. doc, 'prepare')
    end
  end
end
