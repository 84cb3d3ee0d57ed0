-- Grabs: one process among many works on an instance of a key.

-- grab_take: one process grabs an instance that nobody works on, or whose work has failed or was abandoned.
-- args lane id token ttl lifetime keep about
--   ttl, lifetime, keep: ms; about: JSON of the process
-- returns {won | running | complete | busy, fence, attempt, about, started, ended, value} of its winner; busy: the lane
--   is held, and nobody knows by whom; asked again: the same
step.define('grab_take', {}, function(c, args)
  local lane, id, token, ttl, lifetime, keep, about = unpack(args)
  local grab = held.grab(c, lane)
  if grab.state == 'running' and grab.token == token then return grabs.told('won', grab) end
  if grab.state == 'running' or grab.state == 'complete' then return grabs.told(grab.state, grab) end
  local fence = held.take(c, id, lane, token, ttl, lifetime)
  if not fence then -- the record of the one before is gone, and its lane is not yet free
    settle.end_lapsed(c, lane)
    fence = held.take(c, id, lane, token, ttl, lifetime)
  end
  if not fence then return grabs.told('busy', {}) end
  grabs.begin_code(c, lane, grab, keep + lifetime, id, token, fence, about)
  return grabs.told('won', grab)
end)

-- grab_end: the winner has completed the instance, or failed; all who wait are told.
-- args lane id token state keep value
--   state: complete | failed; keep: ms; value: JSON of the result, or of the reason
-- returns ended, or lost where another has taken over, or may; asked again: the same
step.define('grab_end', {'allow-oom'}, function(c, args)
  local lane, id, token, state, keep, value = unpack(args)
  local grab = grabs.read(c, lane)
  if grab.token ~= token then return 'lost' end
  if grab.state == state then return 'ended' end
  if grab.state ~= 'running' or not held.is_ours(c, lane, token) then return 'lost' end
  held.drop(c, id, lane, token)
  grabs.end_code(c, lane, grab, state, keep, value)
  return 'ended'
end)

-- grab_look: how an instance is.
-- args lane
-- returns {'' | running | complete | failed | abandoned, fence, attempt, about, started, ended, value} of its last
--   winner; asked again: the same
step.define('grab_look', {'allow-oom'}, function(c, args)
  local grab = held.grab(c, args[1])
  return grabs.told(grab.state, grab)
end)
