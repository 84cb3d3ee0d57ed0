-- Collectors: a job that gathers calls until it is claimed. A lane has at most one that is open, equal:collect:<key> by
-- the job's first key. Its record has `collect`, the terms of its newest call; `called` and `bytes`, the number and the
-- size of its calls; `calls`, JSON {"<how>": [call, …]}: the newest call (latest), or the first. All calls after the
-- first of a list or merge lie in calls:<id> until the seal (rules/coalesce.lua).
local collect = {}

-- Reads the terms, `collect <how> <idle> <max_wait or -> <most> <most_bytes> <digest?>` (ms). digest: of what the calls
-- of a merge must have in common. nil: the text has none.
function collect.terms(text)
  local terms = string.match(text, '^collect (.*)$')
  if not terms then return nil end
  local how, idle, longest, most, bytes, alike = string.match(terms, '^(%a+) (%d+) (%S+) (%d+) (%d+) ?(%x*)$')
  return {text = text, how = how, idle = tonumber(idle), longest = tonumber(longest), most = tonumber(most),
    bytes = tonumber(bytes), alike = alike}
end

-- When a collection ends: `idle` after now, at most `longest` after `first`. One that is due stays due, even if more
-- comes before the supervisor looks. longest?: nil = without a bound. due?: as it was.
function collect.ends(c, first, idle, longest, due)
  if due and due <= c.now then return due end
  return longest and math.min(c.now + idle, first + longest) or c.now + idle
end

-- The call in the text of the field `calls` of a submit, which has one.
local function call_of(text) return string.match(text, '^{"%a+":%[(.*)%]}$') end

-- Adds the fields of a collector to those of its first call.
function collect.begin(terms, fields, list)
  local bytes = base.text_of(#call_of(fields.calls))
  for _, text in ipairs({'collect', terms.text, 'called', '1', 'bytes', bytes}) do list[#list + 1] = text end
end

-- Lets a new job collect until its time.
function collect.wait(c, id, score, terms)
  redis.call('HSET', c.P .. 'job:' .. id, 'score', score)
  redis.call('ZADD', c.P .. 'due', collect.ends(c, c.now, terms.idle, terms.longest), id)
  states.enter(c, id, 'collecting')
end

-- Puts a job that collects into its lines, where it still collects until it is claimed.
function collect.go(c, id, job)
  redis.call('ZREM', c.P .. 'due', id)
  redis.call('SREM', c.P .. 'state:collecting', id)
  local score = redis.call('HGET', job.name, 'score')
  admit.join(c, id, record.keys_of(job.keys), score, 'waited', string.format('collect %d', c.now - job.submitted))
end

-- Ends a collection before its time: it is full, or another kind of call follows.
local function close(c, id, job)
  coalesce.close(c, id, job, record.keys_of(job.keys))
  if job.state == 'collecting' then collect.go(c, id, job) end
end

-- The job expires when its newest call would.
local function keep_until(c, id, job, expires)
  if job.expires then states.started(c, id, job.expires) end
  if expires then
    states.must_start(c, id, expires)
    record.note(c, id, 'expires', expires)
  elseif job.expires then
    redis.call('HDEL', job.name, 'expires')
  end
end

local function add(c, id, job, fields, terms, call)
  local name, called, bytes = job.name, job.called + 1, #call
  local changed = {'called', base.text_of(called)}
  if terms.how == 'latest' then
    changed[3], changed[4] = 'calls', fields.calls
  else
    redis.call('RPUSH', c.P .. 'calls:' .. id, call)
    bytes = job.bytes + bytes
  end
  changed[#changed + 1], changed[#changed + 2] = 'bytes', base.text_of(bytes)
  redis.call('HSET', name, unpack(changed))
  if job.collect ~= terms.text then redis.call('HSET', name, 'collect', terms.text) end
  if job.expires or fields.expires then keep_until(c, id, job, fields.expires) end
  if called >= terms.most then return close(c, id, job) end
  if job.state ~= 'collecting' then return end
  local due = tonumber(redis.call('ZSCORE', c.P .. 'due', id) or nil)
  local ends = collect.ends(c, tonumber(job.submitted), terms.idle, terms.longest, due)
  if ends ~= due then redis.call('ZADD', c.P .. 'due', base.text_of(ends), id) end
end

-- Adds the call `id` to the open collector of its lane. Returns `coalesced`, the job, and true if it stands in no line
-- yet; `other`, the job, and its task, how, keys and class, where its calls do not go with this one; nil: this call
-- begins a collector.
function collect.join(c, id, keys_text, key, fields, terms)
  local into = redis.call('GET', c.P .. 'equal:' .. coalesce.COLLECTS .. ':' .. key)
  if not into then return nil end
  local job = record.fill({name = c.P .. 'job:' .. into}, 'state', 'keys', 'class', 'task', 'equal', 'collect',
    'called', 'bytes', 'submitted', 'expires', 'aliases')
  if not job.equal then return nil end
  local theirs, call = collect.terms(job.collect), call_of(fields.calls)
  if job.task ~= fields.task or job.class ~= fields.class or job.keys ~= keys_text or theirs.how ~= terms.how then
    return 'other', into, table.concat({job.task, theirs.how, job.keys, job.class}, '\0')
  end
  local grows = terms.how ~= 'latest' and job.bytes + #call > terms.bytes
  if grows or theirs.alike ~= terms.alike or job.called + 1 > terms.most then
    close(c, into, job)
    return nil
  end
  add(c, into, job, fields, terms, call)
  return 'coalesced', coalesce.join(c, into, id, job.aliases), job.state == 'collecting' and job.called + 1 < terms.most
end

return collect
