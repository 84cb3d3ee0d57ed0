-- The clocks of the installation, for callers that compare with stored times, and its fences.

step.define('clock_read', {'allow-oom'}, function(c)
  return {c.now, c.wall, c.uptime}
end)

step.define('fence_next', {}, function(c)
  return locks.next_fence(c)
end)
