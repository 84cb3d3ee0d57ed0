"""Converts a member to and from entries of DataONE's LDAP schema, without loss. It needs no connection to a server.

    cn=<node id>                                d1Node
        d1NodeServiceId=<name>-<version>        d1NodeService
            d1ServiceMethodName=<method>        d1ServiceMethodRestriction
        d1NodePropertyId=<key>                  d1NodeProperty

A path names an entry below the member's own entry, whose path is `()`. An entry is identified by its attributes, not by
its name. So entries to which others gave another name keep their names.

LDAP keeps no order of values or entries: services are sorted by version and name, everything else by its text. The
schema has no place for two equal values, two restrictions of one method, an empty property, an empty part, or a member
without a contact. In these cases the entries hold a near value: `none` for no contact, a blank for an empty property.
Then a value of the attribute `description` (d1Node inherits that from `device`) is a note: JSON of the exact fields,
each beside a digest of the field as the entries hold it. If others change the entries, the digest no longer matches,
and the note does not count for that field.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from tasks import instants
from tasks.member_node.member import Member, MemberSchedule, Ping, Property, ReplicationPolicy, Restriction, Service
from tasks.nodelist.ldap.schema import (
    ADMITTED,
    ALLOWED,
    APPROVED,
    FOLDED,
    KEYED,
    LIMITS,
    LONGEST,
    METHOD,
    NODE,
    PING,
    PLAIN,
    PROPERTY,
    RESTRICTION,
    SERVED,
    SERVICE,
    SUBJECTS,
    TIMES,
    Attributes,
    Path,
    folded,
    kind,
    rdn,
    size_of,
)

Part = TypeVar("Part", bound=BaseModel)

NOTE = "celery-coordinator: "


class BadEntry(ValueError):
    """Raised where the entry at `path` is not a valid member, or not a valid part of a member."""

    def __init__(self, path: Path, sentence: str) -> None:
        super().__init__(sentence)
        self.path = path


def member_of(entries: Mapping[Path, Attributes]) -> tuple[Member, bool]:
    """Convert a member's entries, by path, to the member, and whether it is approved. Raises BadEntry."""
    member = _plain_member(entries)
    approved = _one(entries[()], APPROVED)
    if approved is None:
        raise BadEntry((), f"{APPROVED} is missing")
    return _noted(member, entries[()]), approved.upper() == "TRUE"


def entries_of(
    member: Member, *, approved: bool, known: Mapping[Path, Attributes] | None = None
) -> dict[Path, Attributes]:
    """Convert a member to entries by path, parents first. `known`: the entries that LDAP has already, which keep their
    names; None: there are none.
    """
    known = known or {}
    entries: dict[Path, dict[str, tuple[str, ...]]] = {(): _node(member, approved)}
    for path, service in _placed(member.services, known, SERVICE, "d1NodeServiceId", ("name", "version"), SERVED):
        entries[path] = _entry(SERVICE, member, d1NodeServiceId=(path[-1][0][1],)) | _texts(service, SERVED)
        entries |= _restrictions(member, path, service, known)
    for path, property_ in _placed(member.properties, known, PROPERTY, "d1NodePropertyId", ("key",), KEYED):
        entries[path] = _entry(PROPERTY, member, d1NodePropertyId=(path[-1][0][1],)) | _texts(property_, KEYED)
        entries[path][KEYED["value"]] = (property_.value or " ",)
    others = [text for text in known.get((), {}).get("description", ()) if not text.startswith(NOTE)]
    entries[()]["description"] = (*others, *_note(member, entries))
    return {path: {name: values for name, values in entry.items() if values} for path, entry in entries.items()}


def _one(attributes: Attributes, name: str) -> str | None:
    return next(iter(attributes.get(name, ())), None)


def _read(attributes: Attributes, names: Mapping[str, str]) -> dict[str, str]:
    return {field: text for field, name in names.items() if (text := _one(attributes, name)) is not None}


def _sorted(attributes: Attributes, name: str) -> tuple[str, ...]:
    return tuple(sorted(text.strip() for text in attributes.get(name, ())))


def _valid(model: type[Part], path: Path, names: Mapping[str, str], values: Mapping[str, object]) -> Part:
    """Validate the `values` of a part of a member, from the entry at `path`. `names`: the attribute of each field.

    Raises BadEntry, which names the attribute and the error.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        wrong = "; ".join(
            f"{names.get(str(item['loc'][0]), str(item['loc'][0]))} "
            + ("is missing" if item["type"] == "missing" else f"is bad: {item['msg']}")
            for item in error.errors()
        )
        raise BadEntry(path, wrong) from error


def _of(entries: Mapping[Path, Attributes], which: str, above: Path = ()) -> Iterator[tuple[Path, Attributes]]:
    for path, entry in sorted(entries.items(), key=lambda item: item[0]):
        if path[:-1] == above and kind(path, entry) == which:
            yield path, entry


def _plain_member(entries: Mapping[Path, Attributes]) -> Member:
    """Convert a member's entries to the member, without the exact fields in the note. Raises BadEntry."""
    node = entries[()]
    times, ping = _read(node, TIMES), _read(node, PING)
    allowed = {field: _sorted(node, name) for field, name in ALLOWED.items() if node.get(name)}
    policy = {**_read(node, LIMITS), **allowed}
    values: dict[str, object] = {
        **_read(node, PLAIN),
        **{field: _sorted(node, name) for field, name in SUBJECTS.items()},
        "schedule": _valid(MemberSchedule, (), TIMES, times) if times else None,
        "ping": _valid(Ping, (), PING, ping) if ping else None,
        "replication_policy": _valid(ReplicationPolicy, (), LIMITS | ALLOWED, policy) if policy else None,
        "services": _services(entries),
        "properties": sorted(
            (_valid(Property, path, KEYED, _read(entry, KEYED)) for path, entry in _of(entries, PROPERTY)),
            key=lambda property_: property_.key,
        ),
    }
    return _valid(Member, (), PLAIN | SUBJECTS, values)


def _services(entries: Mapping[Path, Attributes]) -> list[Service]:
    services = []
    for path, entry in _of(entries, SERVICE):
        restrictions = [
            _valid(
                Restriction,
                below,
                {"method": METHOD, "subjects": ADMITTED},
                {**_read(inner, {"method": METHOD}), "subjects": _sorted(inner, ADMITTED)},
            )
            for below, inner in _of(entries, RESTRICTION, path)
        ]
        restrictions.sort(key=lambda restriction: restriction.method)
        services.append(_valid(Service, path, SERVED, {**_read(entry, SERVED), "restrictions": restrictions}))
    return sorted(services, key=lambda service: (service.version, service.name))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime):
        if value == instants.NEVER:
            return "1900-01-01T00:00:00Z"
        return (instants.full(value) if value.microsecond % 1000 else instants.brief(value)).replace("Z", "+00:00")
    return str(value)


def _texts(part: BaseModel, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The fields of `part` as values of attributes. `names`: the attribute of each field. Empty fields are left out."""
    texts = {name: _text(value) for field, name in names.items() if (value := getattr(part, field)) is not None}
    return {name: (text,) for name, text in texts.items() if text}


def _set(values: Iterable[str], name: str) -> tuple[str, ...]:
    """The values of the attribute `name` without duplicates, as the server compares values of that attribute."""
    first: dict[str, str] = {}
    for value in values:
        first.setdefault(folded(value).casefold() if name in FOLDED else folded(value), value)
    return tuple(first.values())


def _entry(name: str, member: Member, **naming: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {"objectClass": ("top", name), "d1NodeId": (member.identifier,), **naming}


def _node(member: Member, approved: bool) -> dict[str, tuple[str, ...]]:
    entry = _entry(NODE, member, cn=(member.identifier,)) | {"objectClass": ("top", "device", NODE)}
    entry |= _texts(member, PLAIN) | {APPROVED: (_text(approved),)}
    for part, names in ((member.schedule, TIMES), (member.ping, PING), (member.replication_policy, LIMITS)):
        entry |= {} if part is None else _texts(part, names)
    for whole, names in ((member, SUBJECTS), (member.replication_policy, ALLOWED)):
        entry |= {name: _set(getattr(whole, field, ()), name) for field, name in names.items()}
    entry[SUBJECTS["contact_subjects"]] = entry[SUBJECTS["contact_subjects"]] or ("none",)
    return entry


def _placed(
    parts: Iterable[Part],
    known: Mapping[Path, Attributes],
    which: str,
    naming: str,
    by: tuple[str, ...],
    names: Mapping[str, str],
) -> Iterator[tuple[Path, Part]]:
    """Yield each part with the path of the entry in `known` that holds the part already, or with a new path.

    `which`: the object class of the entries. `naming`: the attribute in new names. `by`: the fields that identify a
    part. `names`: the attribute of each field.
    """
    there: dict[tuple[str, ...], list[Path]] = {}
    for path, entry in _of(known, which):
        there.setdefault(tuple((_one(entry, names[field]) or "").strip() for field in by), []).append(path)
    taken = {folded(value) for path in known if len(path) == 1 for name, value in path[0] if name == naming}
    for part in parts:
        key = tuple(str(getattr(part, field)) for field in by)
        if there.get(key):
            yield there[key].pop(0), part
            continue
        name = _free("-".join(key), taken)
        taken.add(folded(name))
        yield (rdn(naming, name),), part


def _restrictions(
    member: Member, above: Path, service: Service, known: Mapping[Path, Attributes]
) -> dict[Path, dict[str, tuple[str, ...]]]:
    """Make an entry for each restricted method of a service, with all subjects that may call the method.

    `above`: the path of the service's entry. `known`: the entries that LDAP has already.
    """
    there = {folded(_one(entry, METHOD) or ""): path for path, entry in _of(known, RESTRICTION, above)}
    entries: dict[Path, dict[str, tuple[str, ...]]] = {}
    for restriction in service.restrictions:
        name = _shortened(restriction.method)
        path = there.setdefault(folded(name), (*above, rdn(METHOD, name)))
        naming = {METHOD: (path[-1][0][1],), "d1NodeServiceId": (above[-1][0][1],)}
        entry = entries.setdefault(path, _entry(RESTRICTION, member, **naming))
        entry[ADMITTED] = _set((*entry.get(ADMITTED, ()), *restriction.subjects), ADMITTED)
    return entries


def _shortened(name: str) -> str:
    """A name for an entry, short enough to leave room for a number. A long name becomes its start and a digest."""
    if size_of(name) <= LONGEST - 80:
        return name
    start = name
    while size_of(start) > LONGEST - 120:
        start = start[: len(start) * 3 // 4]
    return f"{start.rstrip()}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _free(name: str, taken: set[str]) -> str:
    name, number = _shortened(name), 1
    candidate = name
    while folded(candidate) in taken:
        number += 1
        candidate = f"{name} ({number})"
    return candidate


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _note(member: Member, entries: Mapping[Path, Attributes]) -> tuple[str, ...]:
    held, exact = (version.model_dump(mode="json") for version in (_plain_member(entries), member))
    note = {field: [_digest(held[field]), exact[field]] for field in exact if held[field] != exact[field]}
    return (NOTE + json.dumps(note, ensure_ascii=False, sort_keys=True),) if note else ()


def _noted(member: Member, node: Attributes) -> Member:
    """The member with the exact fields in its note, unless others have changed these fields in the entries since.

    `node`: the member's own entry. A note that cannot be parsed is ignored.
    """
    note = next((text[len(NOTE) :] for text in node.get("description", ()) if text.startswith(NOTE)), None)
    if note is None:
        return member
    held = member.model_dump(mode="json")
    try:
        exact = {field: value for field, (digest, value) in json.loads(note).items() if digest == _digest(held[field])}
        return Member.model_validate(held | exact)
    except (ValueError, KeyError, TypeError, AttributeError):
        return member
