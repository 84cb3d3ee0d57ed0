-- Grabs: one process among many works on an instance of a key.

-- grab_take: grabs an instance that nobody works on, or whose work failed or was abandoned.
-- args lane id token ttl lifetime keep attempts about
--   ttl, lifetime, keep: ms; attempts: work with this many failures is final; about: JSON of the process
-- returns {won | running | complete | failed | busy, fence, attempt, about, started, ended, value, earlier} of its
--   winner; busy: the lane has a holder that is no winner; earlier: lines of JSON, each of an earlier winner; asked
--   again: the same
step.define('grab_take', {}, function(c, args)
  local lane, id, token, ttl, lifetime, keep, attempts, about = unpack(args)
  local grab = held.grab(c, lane)
  if grab.state == 'running' and grab.token == token then return grabs.reply('won', grab) end
  if grab.state == 'running' or grab.state == 'complete' or grabs.is_final(grab, attempts) then
    return grabs.reply(grab.state, grab)
  end
  local fence = held.take(c, id, lane, token, ttl, lifetime)
  if not fence then -- the record of the former winner is gone, but its lane is not free yet
    settle.end_lapsed(c, lane)
    fence = held.take(c, id, lane, token, ttl, lifetime)
  end
  if not fence then return grabs.reply('busy', {}) end
  grabs.begin_code(c, lane, grab, keep + lifetime, id, token, fence, about)
  return grabs.reply('won', grab)
end)

-- grab_end: notes that the winner completed the instance or failed, and wakes all who wait.
-- args lane id token state keep value
--   state: complete | failed; keep: ms; value: JSON of the result, or of the reason
-- returns ended, or lost if another process has taken over, or may; asked again: the same
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

-- grab_release: takes the instance from its winner for an operator, or lets work that failed for good be tried again. A
-- winning job is cancelled; a winning process is fenced out at once.
-- args lane attempt act
--   attempt: of the winner from which it is taken, '' = any winner
-- returns the JSON of the winner, '' = that winner neither works on it nor failed; asked again: '', without an attempt
--   the next winner's
step.define('grab_release', {'allow-oom'}, function(c, args)
  local lane, attempt, act = unpack(args)
  local grab = held.grab(c, lane)
  if grab.state ~= 'running' and grab.state ~= 'failed' then return '' end
  if attempt ~= '' and attempt ~= grab.attempt then return '' end
  act = audit.act(c, act)
  local changed, before = true, grab.state .. ' ' .. (grab.job or '')
  if grab.state == 'running' and grab.token == '' then
    changed = select(2, cancel.job(c, grab.job, act))
  else
    if grab.state == 'running' then held.drop(c, grab.job, lane, grab.token) end
    grabs.release(c, lane, grab, {type = 'Released', message = act.why, by = act.by, at = c.wall})
  end
  if changed then audit.note(c, act, 'release', 'grab', grabs.shown(lane), before, 'abandoned') end
  return grab.about
end)

-- grab_look: reads the state of an instance.
-- args lane
-- returns {'' | running | complete | failed | abandoned, fence, attempt, about, started, ended, value, earlier} of its
--   last winner; asked again: the same
step.define('grab_look', {'allow-oom'}, function(c, args)
  local grab = held.grab(c, args[1])
  return grabs.reply(grab.state, grab)
end)
