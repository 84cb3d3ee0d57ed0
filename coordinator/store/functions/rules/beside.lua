-- Beside: writes to the databases of the app's broker and results, if they are on this server. Such a write happens
-- together with the rest of the step or not at all.
local beside = {}

-- Runs one command in a database; home: the installation's database. Returns false if the server refuses.
function beside.call(database, home, ...)
  if database ~= home and redis.pcall('SELECT', database).err then return false end
  local reply = redis.pcall(...)
  if database ~= home then redis.call('SELECT', home) end
  return type(reply) ~= 'table' or not reply.err
end

-- Stores and publishes a result as Celery's Redis backend does. seconds: its lifetime, 0 = for ever. Returns false if
-- the server refuses: then the result stays owed.
function beside.store_result(key, value, seconds, database, home)
  local stored
  if seconds == '0' then
    stored = beside.call(database, home, 'SET', key, value)
  else
    stored = beside.call(database, home, 'SET', key, value, 'EX', seconds)
  end
  if stored then redis.pcall('PUBLISH', key, value) end -- wakes AsyncResult.get()
  return stored
end

-- Puts a doorbell's message into its node's queue. The node registered both: bell_queue = "<database> <home> <name of
-- the queue>", and bell_message. tag: unique for each message. Returns false if the node registered none, or Redis
-- refuses.
function beside.put_bell(c, node, bell, tag)
  local queue, message = unpack(redis.call('HMGET', c.P .. 'node:' .. node, 'bell_queue', 'bell_message'))
  if not queue then return false end
  local database, home, name = string.match(queue, '^(%d+) (%d+) (.*)$')
  message = string.gsub(string.gsub(message, 'THE_BELL', bell), 'THE_TAG', tag)
  return beside.call(database, home, 'LPUSH', name, message)
end

return beside
