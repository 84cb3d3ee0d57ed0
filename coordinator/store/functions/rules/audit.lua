-- The audit trail: `actions`, a stream of the newest acts of operators. A step that acts writes its line itself, and
-- none where it changes nothing. A caller passes an act as JSON {why, by, ticket?, own?, id?}. own: the coordinator
-- itself acts, which stands in no trail. id: of an act on many things, which is one line: {…, kind, name, before,
-- after?}.
local audit = {}

local MOST, REMEMBERED = 10000, 3600000 -- lines; ms for which the id of an act is known

-- Reads an act that a caller passes, and adds the time.
function audit.act(c, text)
  local act = cjson.decode(text)
  act.at = c.wall
  return act
end

-- The act as records keep it.
function audit.kept(act) return cjson.encode({why = act.why, by = act.by, ticket = act.ticket, at = act.at}) end

-- True if the kept text of an act says the same, whenever that was.
function audit.is_same(text, act)
  local good, kept = pcall(cjson.decode, text)
  return good and type(kept) == 'table' and kept.why == act.why and kept.by == act.by and kept.ticket == act.ticket
end

-- Notes an id for so many ms; returns what was noted under it before, or false.
function audit.once(c, id, what, ms)
  return redis.call('SET', c.P .. 'noted:' .. id, what, 'NX', 'GET', 'PX', ms)
end

-- Writes a line. kind, name: of the thing; before, after: its state, limit or holder.
function audit.note(c, act, verb, kind, name, before, after)
  if act.own then return end
  if act.id then
    if audit.once(c, act.id, verb, base.text_of(REMEMBERED)) then return end
    kind, name, before, after = act.kind, act.name, act.before, act.after or ''
  end
  redis.call('XADD', c.P .. 'actions', 'MAXLEN', base.text_of(MOST), '*', 'at', base.text_of(act.at), 'by', act.by,
    'act', verb, 'kind', kind, 'name', name, 'why', act.why, 'ticket', act.ticket or '', 'before', before,
    'after', after)
end

return audit
