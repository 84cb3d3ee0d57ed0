"""How a listed member stands in the nodelist's document, and the notes about what the permanent store has of it."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from coordinator.copies import Copy, text_of
from tasks import instants
from tasks.catalog import Dates
from tasks.member import Member
from tasks.sources import DATES, Found, Listed, State

MEMBER, DATED = "member/", "dates/"
NOBODY: dict[str, Any] = {MEMBER: None}
"""The change that gives a document of no member its first version: the removal of a member without an id.
Under a fence, or it would be no change."""
UNKNOWN = "?"
"""The store has made what it has of no listing of ours."""
INTENTS = 20


def ours_of(copy: Copy, node_id: str) -> Listed | None:
    value, dates = copy.value(MEMBER + node_id), copy.value(DATED + node_id) or {}
    return value and Listed(member=Member.model_validate(value["member"] | dates), approved=value["approved"])


def has(note: Any, wanted: Listed | None) -> bool:
    """Has the store what is wanted, or what it made of it?"""
    if note is None:
        return wanted is None
    text = wanted and wanted.model_dump(mode="json")
    return bool(text in (note["wrote"], note["listed"]))


def foreign(note: Any, state: State | None) -> set[str]:
    """The fields that somebody else than us changed in the store; all of them for a member that is new or gone.

    Ours is what was there and what we are about to write, and what is between: a member is written entry by entry.
    """
    known = [note["listed"], *note["intents"]] if note else [None]
    if state is None:
        return set() if None in known else {*Member.model_fields, "approved"}
    expected = [_atoms(one) for one in known]
    if None in known[1:]:  # being removed: unapproved first
        expected.append({("approved",): False})
    theirs = _atoms(state.listed.model_dump(mode="json"))
    paths = {path for atoms in (theirs, *expected) for path in atoms}
    return {path[0] for path in paths if all(theirs.get(path) != atoms.get(path) for atoms in expected)}


def _atoms(listed: Any) -> dict[tuple[str, ...], Any]:
    """What is written in one step each, by its place."""
    if listed is None:
        return {}
    about = dict(listed["member"])
    services, properties = about.pop("services"), about.pop("properties")
    atoms = {("approved",): listed["approved"]} | {(field,): value for field, value in about.items()}
    for service in services:
        path = "services", service["name"], service["version"]
        atoms[path] = service["available"]
        atoms |= {(*path, one["method"]): sorted(one["subjects"]) for one in service["restrictions"]}
    return atoms | {("properties", one["key"]): [one["type"], one["value"].strip()] for one in properties}


def doubtful(note: Any, run: str, ours: Listed | None) -> set[str]:
    """The fields that are not taken in: a member's, all but its dates, where we have changed it since the note and the
    note is of another run of Redis. That may have lost its end, and with it what we wrote since: one of our own older
    writes would be taken for somebody else's. The dates go by themselves (`merged`).
    """
    before = listed_of(note)
    if note is None or note.get("run") == run or before is None or ours is None or _parts(before)[0] == _parts(ours)[0]:
        return set()
    return {*Member.model_fields, "approved"} - {*DATES}


def differs(note: Any, state: State | None) -> bool:
    """Is it otherwise there than it was last seen?"""
    return bool((state and state.listed.model_dump(mode="json")) != (note and note["listed"]))


def compared(
    before: Mapping[str, str], after: Mapping[str, str], found: Found, run: str
) -> tuple[dict[str, tuple[Any, State | None]], dict[str, Any]]:
    """Notes and states of members that are otherwise there than was noted, or noted in another run of Redis; notes that
    were changed meanwhile.

    `before`, `after`: the notes' texts then, around the reading that `found` them.
    """
    differing: dict[str, tuple[Any, State | None]] = {}
    others: dict[str, Any] = {}
    for node_id in sorted({*after, *found.states} - found.bad):
        text, state = after.get(node_id), found.states.get(node_id)
        if before.get(node_id) != text:
            others[node_id] = parsed(text)
        elif not _settled(text, state, run):
            note = parsed(text)
            if differs(note, state) or note.get("run") != run:
                differing[node_id] = note, state
    return differing, others


def parsed(text: str | None) -> Any:
    """A note, of its text."""
    return None if text is None else json.loads(text)


def _settled(text: str | None, state: State | None, run: str) -> bool:
    """Is it there as it was last seen, and nothing about to be written? Told by the text alone: most notes are so."""
    listed = text_of(state and state.listed.model_dump(mode="json"))
    return text is not None and text.startswith(f'{{"intents":[],"listed":{listed},"run":"{run}",')


def seen(note: Any, state: State | None, run: str) -> dict[str, Any]:
    """The note once that was found. What we were about to write may arrive still, unless it is what is there."""
    theirs = state and state.listed.model_dump(mode="json")
    if note is None:
        return note_of(state, UNKNOWN, run)
    if theirs in note["intents"]:
        return note_of(state, theirs, run)
    return note_of(state, UNKNOWN if differs(note, state) else note["wrote"], run) | {"intents": note["intents"]}


def intending(note: Any, wanted: Listed | None, run: str) -> dict[str, Any]:
    """The note of who is about to write that."""
    known, text = note or note_of(None, UNKNOWN, run), wanted and wanted.model_dump(mode="json")
    return {**known, "intents": [*(one for one in known["intents"] if one != text), text][-INTENTS:]}


def dates_of(copy: Copy, node_id: str) -> Dates:
    found = copy.value(DATED + node_id) or {}
    return Dates(*(found.get(name) and instants.parse(found[name]) for name in DATES))


def texts_of(dates: Dates) -> dict[str, str | None]:
    return {name: None if date is None else instants.full(date) for name, date in zip(DATES, dates, strict=True)}


def difference(node_id: str, before: Listed | None, after: Listed | None) -> dict[str, Any]:
    """What is to be committed to make `after` of `before`."""
    if before == after:
        return {}
    if after is None:
        return {MEMBER + node_id: None, DATED + node_id: None}
    changes: dict[str, Any] = {}
    about, dates = _parts(after)
    if before is None or _parts(before)[0] != about:
        changes[MEMBER + node_id] = about
    if before is None or _parts(before)[1] != dates:
        changes[DATED + node_id] = dates
    return changes


def whole(node_id: str, one: Listed | None) -> dict[str, Any]:
    """What is to be committed for it to be written once more."""
    return difference(node_id, None, one) or {MEMBER + node_id: None}


def _parts(one: Listed) -> tuple[dict[str, Any], dict[str, str | None]]:
    about = one.member.model_dump(mode="json", exclude=set(DATES))
    return {"approved": one.approved, "member": about}, texts_of(Dates(*(getattr(one.member, name) for name in DATES)))


def keeping(new: Listed | None, old: Listed | None) -> Listed | None:
    """What a node-list document does not name stays: who is approved, and dates that it is silent about."""
    if new is None or old is None:
        return new
    dates = {name: getattr(new.member, name) or getattr(old.member, name) for name in DATES}
    return Listed(member=new.member.model_copy(update=dates), approved=old.approved)


def note_of(state: State | None, wrote: Any, run: str) -> dict[str, Any]:
    """`wrote`: of which listing of ours the store has made what it has; UNKNOWN: of none. `run`: that of Redis, before
    what the store has was read or written."""
    listed = state and state.listed.model_dump(mode="json")
    return {"listed": listed, "token": state and state.token, "wrote": wrote, "run": run, "intents": []}


def _of_json(text: Any) -> Listed | None:
    return None if text is None else Listed.model_validate(text)


def listed_of(note: Any) -> Listed | None:
    return _of_json(note["listed"]) if note else None


def state_of(note: Any) -> State | None:
    listed = listed_of(note)
    return None if listed is None else State(listed, note["token"])


def later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((date for date in (one, other) if date is not None), default=None)


def lines_of(node_id: str, before: Listed | None, after: Listed | None) -> list[str]:
    """The differences, a line each."""
    if before is None or after is None:
        return [f"{node_id} is new"] if after else [f"{node_id} is gone"] if before else []
    old, new = before.member.model_dump(mode="json"), after.member.model_dump(mode="json")
    lines = [f"{node_id}: {name}: {old[name]} → {new[name]}" for name in old if old[name] != new[name]]
    if before.approved != after.approved:
        lines.append(f"{node_id} is {'approved' if after.approved else 'suspended'}")
    return lines
