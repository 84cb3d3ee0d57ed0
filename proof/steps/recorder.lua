-- Stands before the text of a library: each call of its functions leaves a line in the server's log, which is in the
-- order of the calls, and outlives what Redis loses. It is `STEP ` and JSON of
-- {life, before, after, function, keys, begun, time, args, reply, error, outside}. life: of this library in this process
-- of the server; before, after: the name of the state, which stands beside the keys of the installation and is lost with
-- them; the same for a function that only reads; begun, time: seconds and µs before it, and as it saw them, where it
-- looked; outside: what the server answered of others: how many listen to what was published, which process it is.
local function server() return redis end
local redis = (function()
  local life, count, seen, outside = nil, 0, nil, nil
  local found = {}

  -- Notes what no step decides: the time, who listens, and which process serves as whose master.
  local function told(reply, command)
    if command == 'TIME' then
      seen = reply
    elseif command == 'PUBLISH' then
      outside[#outside + 1] = string.format('%d', reply)
    elseif command == 'INFO' and type(reply) == 'string' then
      local process, term = string.match(reply, 'run_id:%x+'), string.match(reply, 'master_replid:%x+')
      outside[#outside + 1] = process or term or ''
    end
    return reply
  end

  local function call(...) return told(found.call(...), ...) end

  -- Numbers as Redis sends them, all of them as text: cjson would round fences.
  local function sent(value)
    if type(value) == 'number' then return string.format('%.0f', value >= 0 and math.floor(value) or math.ceil(value)) end
    if value == true then return '1' end
    if type(value) ~= 'table' then return value or cjson.null end
    if value.err or value.ok then return {err = value.err, ok = value.ok} end
    local list = {}
    for i, one in ipairs(value) do list[i] = sent(one) end -- up to the first nil, as Redis does
    return list
  end

  -- A line of the log has room for a thousand bytes: the parts before the last one are marked.
  local function write(text)
    while #text > 900 do
      server().log(server().LOG_WARNING, 'STEP+ ' .. string.sub(text, 1, 900))
      text = string.sub(text, 901)
    end
    server().log(server().LOG_WARNING, 'STEP ' .. text)
  end

  local function register(function_)
    local name, body, reads = function_.function_name, function_.callback, function_.flags[1] == 'no-writes'
    function_.callback = function(keys, args)
      if not life then
        found.call = server().call
        life = table.concat(found.call('TIME'), '.')
      end
      seen, outside = false, {}
      local begun = found.call('TIME')
      local state = 'recorded:' .. keys[1]
      local before = found.call('GET', state) or ''
      local given = {}
      for i, arg in ipairs(args) do given[i] = arg end -- a function may change the list
      local good, reply = pcall(body, keys, args)
      local after = before
      if not reads then
        count = count + 1
        after = string.format('%d@%s', count, life)
        found.call('SET', state, after)
      end
      local line = {life, before, after, name, keys, begun, seen or cjson.null, given, cjson.null, cjson.null, outside}
      if good then line[9] = sent(reply) else line[10] = type(reply) == 'table' and reply.err or tostring(reply) end
      write(cjson.encode(line))
      if not good then error(reply, 0) end
      return reply
    end
    return server().register_function(function_)
  end

  return {
    call = call,
    pcall = function(...) return told(server().pcall(...), ...) end,
    log = function(...) return server().log(...) end,
    LOG_WARNING = 3,
    register_function = register,
    sha1hex = function(text) return server().sha1hex(text) end,
  }
end)()
