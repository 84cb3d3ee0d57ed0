-- The clocks of the installation, for callers that compare with stored times, and its fences.

-- clock_read: reads the clocks.
-- returns {now, wall, uptime} in ms: the installation's clock, the server's, the time without silences; asked again:
--   the time then
step.define('clock_read', {'allow-oom'}, function(c)
  return {c.now, c.wall, c.uptime}
end)

-- fence_next: creates a fence for a writer without a lane.
-- returns the fence; asked again: another one
step.define('fence_next', {}, function(c)
  return locks.next_fence(c)
end)
