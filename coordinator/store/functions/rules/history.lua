-- History: what people are told of a job's past.
-- The field `course` of a record has a line of JSON for each event that its instants (submitted, readied, taken,
-- started, ended) do not tell; a job that simply ran has none.
local history = {}

local MOST, LONGEST = 50, 200 -- lines of a course; bytes of each text in it

-- The text without what is too long; a character is never cut in two.
local function cut(text)
  if #text <= LONGEST then return text end
  return (string.gsub(string.sub(text, 1, LONGEST), '[\192-\255][\128-\191]*$', '')) .. '…'
end

-- Copies type, message, why and by from the JSON of an error or of an act; an error may be a mere text.
local function explain(event, detail)
  local good, about = pcall(cjson.decode, detail)
  if good and type(about) == 'string' then about = {message = about} end
  if not good or type(about) ~= 'table' then return end
  for _, name in ipairs({'type', 'message', 'why', 'by'}) do
    if type(about[name]) == 'string' then event[name] = cut(about[name]) end
  end
end

-- Counts one more for this task of `what`: created, an outcome, retries, losses or faults.
function history.count(c, what, task, number)
  redis.call('HINCRBY', c.P .. 'counts', what .. '\n' .. (task or ''), number or '1')
end

-- Adds an event to a job's course. detail: JSON of its cause or of the act; due: when the job goes on.
-- at: when it happened, nil = now. An attempt that ended, or was parked, is told with its beginning.
function history.note(c, job, what, detail, due, at)
  local before, step = unpack(redis.call('HMGET', job.name, 'course', 'step'))
  local event = {at = tonumber(at) or c.now, what = what, step = tonumber(step or nil), due = due,
    node = job.node or nil, attempt = tonumber(job.attempt or nil), since = tonumber(job.started or nil)}
  if detail then explain(event, detail) end
  local text = (before and before .. '\n' or '') .. cjson.encode(event)
  if select(2, string.gsub(text, '\n', '')) >= MOST then text = string.match(text, '\n(.*)$') end
  redis.call('HSET', job.name, 'course', text)
end

return history
