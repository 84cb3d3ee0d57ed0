-- Steps: the functions that clients call. Each is atomic. Its key is the installation's prefix; its arguments are
-- declared in Python (store/steps.py), and `body` gets them in that order, behind the context. A lost reply does no
-- harm: the caller may repeat each step with the same tokens.
-- flags: allow-oom = it works while Redis is full (`maxmemory`); no-writes = it only reads.
local step = {}

function step.define(name, flags, body)
  local declared = DECLARED[name]
  local count, values, rest = declared.count, declared.values, declared.rest
  redis.register_function{
    function_name = name .. '_' .. DIGEST,
    flags = flags,
    callback = function(keys, args)
      if not string then begin() end
      local c = base.context(keys)
      if c.format and tonumber(c.format) > record.FORMAT then return {err = 'FORMAT ' .. c.format} end
      if #args ~= count and (not rest or #args < count) then
        local text = rest and '%s takes %d or more (%s), not %d' or '%s takes %d (%s), not %d'
        return {err = 'ARGS ' .. string.format(text, name, count, declared.names, #args)}
      end
      local reply = body(c, values(args))
      if c.ended then dependants.go_on(c) end
      if c.freed then admit.freed(c) end
      if c.set_alarm then alarm.set(c) end
      if c.fresh or c.readied then wakes.wake_readied(c) end
      return reply or false
    end,
  }
end

return step
