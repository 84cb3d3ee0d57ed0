-- The audit trail: acts whose work is done elsewhere, in a database, a document or the broker.

-- audit_note: writes an act into the trail.
-- args id ttl act verb kind name before after
--   id: of the act, known for ttl ms; act: JSON (rules/audit.lua)
-- returns 1, 0 = this author noted it before, -1 = another author did, or another act has the id; asked again: 0
step.define('audit_note', {'allow-oom'}, function(c, args)
  local id, ttl, act, verb, kind, name, before, after = unpack(args)
  act = audit.act(c, act)
  local what = verb .. '\n' .. act.by
  local known = audit.once(c, id, what, ttl)
  if known then return known == what and 0 or -1 end
  audit.note(c, act, verb, kind, name, before, after)
  return 1
end)
