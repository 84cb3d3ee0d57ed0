-- Beside: the databases of the app's broker and of its results, where they are on this very server. A step may write
-- there, too, and what it writes is written with the rest of the step or not at all.
local beside = {}

-- One command in that database; home: the database of the installation. false: the server refuses.
function beside.call(database, home, ...)
  if database ~= home and redis.pcall('SELECT', database).err then return false end
  local reply = redis.pcall(...)
  if database ~= home then redis.call('SELECT', home) end
  return type(reply) ~= 'table' or not reply.err
end

-- A result, as Celery's own Redis backend stores and tells it. seconds: how long it is kept, 0 = for ever. Is it
-- stored? Where the server refuses, the result stays owed.
function beside.store_result(key, value, seconds, database, home)
  local stored
  if seconds == '0' then
    stored = beside.call(database, home, 'SET', key, value)
  else
    stored = beside.call(database, home, 'SET', key, value, 'EX', seconds)
  end
  if stored then redis.pcall('PUBLISH', key, value) end -- those who wait in AsyncResult.get()
  return stored
end

-- The message of a doorbell goes into the queue of its node, which told at its registration how: bell_queue =
-- "<database> <home> <name of the queue>", and the message. Is it there? tag: another for each message.
function beside.put_bell(c, node, bell, tag)
  local queue, message = unpack(redis.call('HMGET', c.P .. 'node:' .. node, 'bell_queue', 'bell_message'))
  if not queue then return false end
  local database, home, name = string.match(queue, '^(%d+) (%d+) (.*)$')
  message = string.gsub(string.gsub(message, 'THE_BELL', bell), 'THE_TAG', tag)
  return beside.call(database, home, 'LPUSH', name, message)
end

return beside
