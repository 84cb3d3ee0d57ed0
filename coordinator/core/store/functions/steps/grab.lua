-- Grabs: one process among many works on an instance of a key.

step.define('grab_take', {}, function(c, lane, id, token, ttl, lifetime, keep, attempts, about)
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

step.define('grab_end', {'allow-oom'}, function(c, lane, id, token, state, keep, value)
  local grab = grabs.read(c, lane)
  if grab.token ~= token then return 'lost' end
  if grab.state == state then return 'ended' end
  if grab.state ~= 'running' or not held.is_ours(c, lane, token) then return 'lost' end
  held.drop(c, id, lane, token)
  grabs.end_code(c, lane, grab, state, keep, value)
  return 'ended'
end)

step.define('grab_release', {'allow-oom'}, function(c, lane, attempt, act)
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

step.define('grab_look', {'allow-oom'}, function(c, lane)
  local grab = held.grab(c, lane)
  return grabs.reply(grab.state, grab)
end)
