-- Steps: the functions that clients call. Each is atomic, and its header names its arguments. Its key is the
-- installation's prefix. A lost reply does no harm: the caller may repeat each step with the same tokens.
-- flags: allow-oom = it works while Redis is full (`maxmemory`); no-writes = it only reads.
local step = {}

function step.define(name, flags, body)
  redis.register_function{
    function_name = name .. '_' .. DIGEST,
    flags = flags,
    callback = function(keys, args)
      if not string then begin() end
      local c = base.context(keys)
      if c.format and tonumber(c.format) > record.FORMAT then return {err = 'FORMAT ' .. c.format} end
      local reply = body(c, args)
      if c.fresh or c.readied then wakes.wake_readied(c) end
      return reply or false
    end,
  }
end

return step
