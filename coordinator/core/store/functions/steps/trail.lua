-- The audit trail: acts whose work is done elsewhere, in a database, a document or the broker.

step.define('audit_note', {'allow-oom'}, function(c, id, ttl, act, verb, kind, name, before, after)
  act = audit.act(c, act)
  local what = verb .. '\n' .. act.by
  local known = audit.once(c, id, what, ttl)
  if known then return known == what and 0 or -1 end
  audit.note(c, act, verb, kind, name, before, after)
  return 1
end)
