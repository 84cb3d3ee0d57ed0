-- Results: where the result backend is a database of this very server, the step that accepts a success stores its
-- result there, as Celery's own Redis backend does. Then nobody is owed anything.
local results = {}

-- seconds: how long it is kept, 0 = for ever; home: the database of the installation. Is it stored? Where the server
-- refuses, the result stays owed.
function results.store(key, value, seconds, database, home)
  if database ~= home and redis.pcall('SELECT', database).err then return false end
  local reply = seconds == '0' and redis.pcall('SET', key, value) or redis.pcall('SET', key, value, 'EX', seconds)
  if not reply.err then redis.pcall('PUBLISH', key, value) end -- those who wait in AsyncResult.get()
  if database ~= home then redis.call('SELECT', home) end
  return not reply.err
end

return results
