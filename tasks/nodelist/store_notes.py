"""Notes about the permanent store: each member as it was last seen there, and the changes that the store lacks.

A note tells our own writes from other people's. Before a process writes a member, it adds the new value to the note's
`intents`. So a later refresh finds either a noted value, which is ours, or somebody else's change.
"""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, NotRequired, TypedDict

from pydantic import JsonValue

from tasks.documents.copy import text_of
from tasks.documents.document import Document
from tasks.member_node.member import Member
from tasks.nodelist.entries import member_value
from tasks.nodelist.protocol import DATES, SOON
from tasks.nodelist.stores import Listed, State, StoredMembers, Token

ListedJson = dict[str, JsonValue]
"""A Listed as JSON."""

UNKNOWN = "?"
"""In `wrote`: the value in the store does not come from any value of ours."""
INTENTS = 20


class Note(TypedDict):
    """Our knowledge of one member in the store. It is JSON, and lies beside the document in Redis."""

    listed: ListedJson | None
    """The member as it was last seen in the store. None: it was not there."""
    token: Token | None
    wrote: ListedJson | str | None
    """The value of ours that the store turned into `listed`, or UNKNOWN."""
    intents: list[ListedJson | None]
    """Values that somebody is about to write, or may still write late."""
    run: str
    """The run of Redis in which the note was made: an earlier run may have lost later notes."""
    why: NotRequired[str]
    """Why the store lacks the newest version."""


class Sighting(NamedTuple):
    """A member as the store has it, and the note that stood while it was read."""

    note: Note | None
    state: State | None


class Pending(NamedTuple):
    """The version that the store lacks. `why` is empty where that is not known, or a write is in progress."""

    version: int
    why: str

    @property
    def reason(self) -> str:
        return self.why or SOON


def lacking(document: Document) -> dict[str, Pending]:
    """The members whose newest version the permanent store lacks."""
    versions: dict[str, int] = {}
    for entry, version in sorted(document.behind().items()):
        if member_id := entry.partition("/")[2]:  # no id: the entry says that the list is empty
            versions[member_id] = max(version, versions.get(member_id, 0))
    notes = {name: parsed(text) for name, text in (document.stored(*versions) if versions else {}).items()}
    whys = {name: note.get("why", "") for name, note in notes.items() if note}
    return {member_id: Pending(version, whys.get(member_id, "")) for member_id, version in versions.items()}


def lacks(pending: Mapping[str, Pending], store: str) -> list[str]:
    """A sentence about each of these members."""
    return [f"{member_id}: {store} lacks version {lack.version}: {lack.reason}" for member_id, lack in pending.items()]


def in_few_lines(sentences: Iterable[str], store: str) -> Iterator[str]:
    """The sentences; those of `lacks` that have one reason become one line, with their number."""
    groups: dict[str, list[str]] = {}
    for sentence in sentences:
        _, lack, rest = sentence.partition(f": {store} lacks version ")
        groups.setdefault(rest.partition(": ")[2] if lack else sentence, []).append(sentence)
    for reason, (first, *others) in groups.items():
        member_id = first.partition(f": {store} ")[0]
        about = f"{len(others) + 1} members, such as {member_id}: {store} lacks their newest version: {reason}"
        yield about if others else first


def json_of(listed: Listed | None) -> ListedJson | None:
    return None if listed is None else listed.model_dump(mode="json")


def parsed(text: str | None) -> Note | None:
    """The note in this text."""
    if text is None:
        return None
    note: Note = json.loads(text)
    return note


def note_of(state: State | None, wrote: ListedJson | str | None, run: str) -> Note:
    """The note of a state that was read or written in that run of Redis."""
    listed, token = (json_of(state.listed), state.token) if state else (None, None)
    return {"listed": listed, "token": token, "wrote": wrote, "run": run, "intents": []}


def listed_of(note: Note | None) -> Listed | None:
    return Listed.model_validate(note["listed"]) if note and note["listed"] is not None else None


def state_of(note: Note | None) -> State | None:
    listed = listed_of(note)
    return State(listed, note["token"]) if note and listed else None


def has(note: Note | None, wanted: Listed | None) -> bool:
    """True if the store has the wanted value, or its own form of it, and no other is about to be written."""
    value = json_of(wanted)
    if note is None:
        return wanted is None
    return value in (note["wrote"], note["listed"]) and all(intent == value for intent in note["intents"])


def differs(sighting: Sighting) -> bool:
    """True if the store has another value than it was last seen to have."""
    note, state = sighting
    return (state and json_of(state.listed)) != (note and note["listed"])


def intending(note: Note | None, wanted: Listed | None, run: str) -> Note:
    """The note before somebody writes the wanted value."""
    known, value = note or note_of(None, UNKNOWN, run), json_of(wanted)
    return {**known, "intents": [*(intent for intent in known["intents"] if intent != value), value][-INTENTS:]}


def seen(sighting: Sighting, run: str) -> Note:
    """The note after a sighting. An intended write may still arrive late, unless its value is already there."""
    note, state = sighting
    theirs = state and json_of(state.listed)
    if note is None:
        return note_of(state, UNKNOWN, run)
    if theirs in note["intents"]:
        return note_of(state, theirs, run)
    return {**note_of(state, UNKNOWN if differs(sighting) else note["wrote"], run), "intents": note["intents"]}


def foreign(sighting: Sighting) -> set[str]:
    """The fields that somebody else changed in the store. All fields, for a member that is new there or gone.

    A value is ours where it was there before, where we are about to write it, or where it mixes both: a store writes a
    member entry by entry.
    """
    note, state = sighting
    known = [listed_of(note), *map(_listed, note["intents"])] if note else [None]
    if state is None:
        return set() if None in known else {*Member.model_fields, "approved"}
    expected = [_atoms(value) for value in known]
    if None in known[1:]:  # a removal begins with the approval
        expected.append({("approved",): False})
    theirs = _atoms(state.listed)
    paths = {path for atoms in (theirs, *expected) for path in atoms}
    return {path[0] for path in paths if all(theirs.get(path) != atoms.get(path) for atoms in expected)}


def _listed(value: ListedJson | None) -> Listed | None:
    return None if value is None else Listed.model_validate(value)


def _atoms(listed: Listed | None) -> dict[tuple[str, ...], Hashable]:
    """The parts that a store writes in one step each, by their place."""
    if listed is None:
        return {}
    member = listed.member
    plain = Member.model_fields.keys() - {"services", "properties"}
    atoms: dict[tuple[str, ...], Hashable] = {(field,): getattr(member, field) for field in plain}
    atoms[("approved",)] = listed.approved
    for service in member.services:
        path = "services", service.name, service.version
        atoms[path] = service.available
        atoms |= {(*path, part.method): tuple(sorted(part.subjects)) for part in service.restrictions}
    return atoms | {("properties", part.key): (part.type, part.value.strip()) for part in member.properties}


def doubtful(note: Note | None, run: str, ours: Listed | None) -> set[str]:
    """The fields that a refresh must not take from the store, because they may come from an older write of ours.

    Redis may have lost its end between two runs, and with it the note of such a write. So a note of another run is in
    doubt wherever we have changed the member since: all of the member is, except its dates, which `merged` compares.
    """
    before = listed_of(note)
    if note is None or note.get("run") == run or before is None or ours is None:
        return set()
    if member_value(before) == member_value(ours):
        return set()
    return {*Member.model_fields, "approved"} - {*DATES}


def compared(
    before: Mapping[str, str], after: Mapping[str, str], stored: StoredMembers, run: str
) -> tuple[dict[str, Sighting], dict[str, Note | None]]:
    """Two results. First, sightings that differ from the note, or whose note is of another run of Redis or has intents.
    Second, notes that somebody changed while the store was read.

    `before`, `after`: the texts of all notes, before and after that reading.
    """
    differing: dict[str, Sighting] = {}
    others: dict[str, Note | None] = {}
    for member_id in sorted({*after, *stored.states} - stored.bad):
        text, state = after.get(member_id), stored.states.get(member_id)
        if before.get(member_id) != text:
            others[member_id] = parsed(text)
        elif not _settled(text, state, run):
            sighting = Sighting(note := parsed(text), state)
            if note is None or note["intents"] or differs(sighting) or note.get("run") != run:
                differing[member_id] = sighting
    return differing, others


def _settled(text: str | None, state: State | None, run: str) -> bool:
    """True if the member is as last seen, with no write intended. Compares texts, since most are settled."""
    listed = text_of(state and json_of(state.listed))
    return text is not None and text.startswith(f'{{"intents":[],"listed":{listed},"run":"{run}",')
