-- The clock of the installation, for those who must compare with what is stored.

-- clock_read: what time it is.
-- returns {now, wall, uptime} in ms: the installation's clock, the server's, the time without silences; asked again:
--   what it is then
step.define('clock_read', {'allow-oom'}, function(c)
  return {c.now, c.wall, c.uptime}
end)
