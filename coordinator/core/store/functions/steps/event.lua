-- Events: set by programs and operators.

step.define('event_set', {}, function(c, name, value, keep, act)
  local event, known = c.P .. 'event:' .. name, events.value(c, name)
  if known then return {known == value and 'known' or 'other', known, 0} end
  act = audit.act(c, act)
  redis.call('HSET', event, 'value', value, 'at', base.text_of(c.wall), 'by', act.by, 'why', act.why)
  redis.call('PEXPIRE', event, keep)
  redis.call('ZADD', c.P .. 'events', base.text_of(c.wall + keep), name)
  audit.note(c, act, 'set', 'event', name, '', 'set') -- without its value, which may be secret
  local waiting = redis.call('ZCARD', c.P .. 'dependants:' .. causes.EVENT .. name)
  causes.note_end(c, causes.EVENT .. name, 'set')
  return {'set', value, waiting}
end)
