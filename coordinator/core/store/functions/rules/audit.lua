-- The audit trail: `actions`, a stream of the newest acts of operators. A step that acts writes its line itself, and
-- none where it changes nothing. A caller passes an act as JSON {why, by, ticket?, own?, id?}. own: the coordinator
-- itself acts, which stands in no trail. id: of an act on many things, {…, kind, name, before, after}: its first change
-- writes the line, a key counts its changes, and each thing's own record names it. of: that id, where the act ends.
local audit = {}

local MOST, COUNTED = 10000, 604800000 -- lines; ms for which the changes of an act on many are known

-- Reads an act that a caller passes, and adds the time.
function audit.act(c, text)
  local act = cjson.decode(text)
  act.at = c.wall
  return act
end

-- The act as records keep it.
function audit.kept(act)
  return cjson.encode({why = act.why, by = act.by, ticket = act.ticket, at = act.at, act = act.id})
end

-- The act as the error of a job that it ends. at?: when, where nothing else tells.
function audit.detail(act, kind, at)
  return cjson.encode({type = kind, message = act.why, by = act.by, ticket = act.ticket, at = at, act = act.id})
end

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
    local changed = c.P .. 'acted:' .. act.id
    local count = redis.call('INCR', changed)
    redis.call('PEXPIRE', changed, base.text_of(COUNTED))
    if count > 1 then return end
    kind, name, before, after = act.kind, act.name, act.before, act.after
  end
  redis.call('XADD', c.P .. 'actions', 'MAXLEN', base.text_of(MOST), '*', 'at', base.text_of(act.at), 'by', act.by,
    'act', verb, 'kind', kind, 'name', name, 'why', act.why, 'ticket', act.ticket or '', 'before', before,
    'after', after, 'of', act.id or act.of or '')
end

return audit
