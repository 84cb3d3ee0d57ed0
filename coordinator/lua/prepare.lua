-- Shared: how updates become a document's next version.
-- include document

-- What its author is told of an update that is not to be made: a greater fence was seen (stale); an entry is not as its
-- author read it (changed); or it is made already, and asked again since a Redis that lost its end did not know.
-- A change is {entry, JSON, checksum of what was read or ''}; its fence is added. `seen`: entries as updates before it in
-- the same version leave them.
local function answer(doc, update, seen)
  local made, refused = true, nil
  for _, change in ipairs(update.changes) do
    local entry = change[1]
    local has = seen[entry] or redis.call('HGET', P .. 'document:' .. doc, entry) or '0 null'
    local fence = string.match(has, '^%d+')
    change[4] = update.fence == '' and fence or update.fence
    made = made and not seen[entry] and has == change[4] .. ' ' .. change[2]
    if tonumber(change[4]) < tonumber(fence) then
      refused = refused or 'stale ' .. fence .. ' ' .. entry
    elseif change[3] ~= '' and change[3] ~= redis.sha1hex(has) then
      refused = refused or 'changed ' .. fence .. ' ' .. entry
    end
  end
  return made and 'committed ' .. pointer_of(doc) or refused
end

-- All that was asked for, in order, becomes the next version, unless one is under way.
local function prepare(doc)
  local asked, under_way = P .. 'asked:' .. doc, P .. 'prepare:' .. doc
  local function free() return redis.call('EXISTS', under_way, P .. 'grace:' .. doc) == 0 end
  while settled(doc) and free() and redis.call('EXISTS', asked) == 1 do
    local seen, updates = {}, {}
    for _, text in ipairs(redis.call('LRANGE', asked, 0, 255)) do
      local update = cjson.decode(text)
      local told = answer(doc, update, seen)
      if told then
        tell(update.id, told)
      else
        for _, change in ipairs(update.changes) do seen[change[1]] = change[4] .. ' ' .. change[2] end
        updates[#updates + 1] = cjson.encode(update)
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
