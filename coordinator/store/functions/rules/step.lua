-- Steps: what can be called from outside, each atomic and with a header that names its arguments. A step is called with
-- the installation's prefix as its first key; it answers {reply, rung}: false for no reply, and the bells to publish,
-- {node, bell} each, where any were rung. A lost reply changes nothing: each step may be asked again with the same
-- tokens.
-- flags: allow-oom = it goes on where Redis is full (`maxmemory`); no-writes = it only reads.
local step = {}

function step.define(name, flags, body)
  redis.register_function{
    function_name = name .. '_' .. DIGEST,
    flags = flags,
    callback = function(keys, args)
      if not string then begin() end
      local c = base.context(keys)
      local reply = body(c, args)
      if c.fresh or c.readied then doorbells.ring_readied(c) end
      return {reply or false, c.rung or nil}
    end,
  }
end

return step
