"""Notes in Redis about the permanent store (XML or LDAP): each member as last read there, and what the store lacks.

A note tells our own writes from those of others. Before a process of the service writes a member to the store, it adds
the new value to the note's `intents`. So if a later refresh finds a value in the store that is not in the note, others
have changed the member.
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
"""A Listed, a member in the nodelist, as JSON."""

UNKNOWN = "?"
"""The value of a note's `wrote` where the service has not written the value in the store."""
INTENTS = 20


class Note(TypedDict):
    """What the service knows about one member in the permanent store: JSON, which lies beside the document in Redis."""

    listed: ListedJson | None
    """The member as it was last read in the store. None: the store did not have the member."""
    token: Token | None
    wrote: ListedJson | str | None
    """The value that the service wrote, and from which the store made `listed`; UNKNOWN: others wrote it."""
    intents: list[ListedJson | None]
    """Values that a process is about to write to the store, or may still write late; None: a removal."""
    run: str
    """The id of Redis' run when the note was made: when that run ended, Redis may have lost later notes."""
    why: NotRequired[str]
    """Why the store lacks the newest version of the member; absent: it does not, or a write is in progress."""


class Reading(NamedTuple):
    """A member as it was read in the store (`state`; None: not there), and the note that was valid meanwhile."""

    note: Note | None
    state: State | None


class Pending(NamedTuple):
    """A version of a member that the permanent store lacks. `why`: the reason; empty: a write is about to happen."""

    version: int
    why: str

    @property
    def reason(self) -> str:
        return self.why or SOON


def pending_members(document: Document) -> dict[str, Pending]:
    """The members whose newest version the permanent store lacks, by id, with that version and the reason."""
    versions: dict[str, int] = {}
    for entry, version in sorted(document.behind().items()):
        if member_id := entry.partition("/")[2]:  # empty for the entry that begins an empty list (entries.NOBODY)
            versions[member_id] = max(version, versions.get(member_id, 0))
    notes = {name: parse_note(text) for name, text in (document.stored(*versions) if versions else {}).items()}
    whys = {name: note.get("why", "") for name, note in notes.items() if note}
    return {member_id: Pending(version, whys.get(member_id, "")) for member_id, version in versions.items()}


def pending_lines(pending: Mapping[str, Pending], store: str) -> list[str]:
    """A sentence about each member whose newest version the store lacks. `store`: the store's name."""
    return [f"{member_id}: {store} lacks version {item.version}: {item.reason}" for member_id, item in pending.items()]


def grouped(sentences: Iterable[str], store: str) -> Iterator[str]:
    """Shorten sentences for a screen: those of `pending_lines` with the same reason become one, with their number.

    `store`: the store's name, as in `pending_lines`. Other sentences stay as they are.
    """
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


def parse_note(text: str | None) -> Note | None:
    if text is None:
        return None
    note: Note = json.loads(text)
    return note


def note_of(state: State | None, wrote: ListedJson | str | None, run: str) -> Note:
    """Make a note about a member whose `state` was read in the store or written to it. None: the store has no member.

    `wrote`: the value that the service wrote, or UNKNOWN. `run`: the id of Redis' run.
    """
    listed, token = (json_of(state.listed), state.token) if state else (None, None)
    return {"listed": listed, "token": token, "wrote": wrote, "run": run, "intents": []}


def listed_of(note: Note | None) -> Listed | None:
    return Listed.model_validate(note["listed"]) if note and note["listed"] is not None else None


def state_of(note: Note | None) -> State | None:
    listed = listed_of(note)
    return State(listed, note["token"]) if note and listed else None


def is_written(note: Note | None, wanted: Listed | None) -> bool:
    """True if the store has the value `wanted`, in its own form, and no process is about to write another value."""
    value = json_of(wanted)
    if note is None:
        return wanted is None
    return value in (note["wrote"], note["listed"]) and all(intent == value for intent in note["intents"])


def differs(reading: Reading) -> bool:
    """True if the store has another value of the member than the note says."""
    note, state = reading
    return (state and json_of(state.listed)) != (note and note["listed"])


def with_intent(note: Note | None, wanted: Listed | None, run: str) -> Note:
    """The note that must be in Redis before the value `wanted` is written to the store: it adds that to the intents."""
    known, value = note or note_of(None, UNKNOWN, run), json_of(wanted)
    return {**known, "intents": [*(intent for intent in known["intents"] if intent != value), value][-INTENTS:]}


def note_after(reading: Reading, run: str) -> Note:
    """The note to keep after a member was read in the store. `run`: the id of Redis' run.

    The intents stay, since an intended write may still happen late; unless the store has the value of one already.
    """
    note, state = reading
    value = state and json_of(state.listed)
    if note is None:
        return note_of(state, UNKNOWN, run)
    if value in note["intents"]:
        return note_of(state, value, run)
    return {**note_of(state, UNKNOWN if differs(reading) else note["wrote"], run), "intents": note["intents"]}


def fields_changed_by_others(reading: Reading) -> set[str]:
    """The fields of a member that others, not the service, changed in the store; all, if they added or removed it.

    A value is ours if it is that of the note, that of an intent, or a mixture of these: LDAP writes a member entry by
    entry.
    """
    note, state = reading
    known = [listed_of(note), *map(_listed, note["intents"])] if note else [None]
    if state is None:
        return set() if None in known else {*Member.model_fields, "approved"}
    expected = [_atoms(value) for value in known]
    if None in known[1:]:  # our removal of a member in LDAP begins with its approval, which it sets to False
        expected.append({("approved",): False})
    theirs = _atoms(state.listed)
    paths = {path for atoms in (theirs, *expected) for path in atoms}
    return {path[0] for path in paths if all(theirs.get(path) != atoms.get(path) for atoms in expected)}


def _listed(value: ListedJson | None) -> Listed | None:
    return None if value is None else Listed.model_validate(value)


def _atoms(listed: Listed | None) -> dict[tuple[str, ...], Hashable]:
    """The smallest parts of a member that a store may write separately, by path, such as one service's flag."""
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


def fields_in_doubt(note: Note | None, run: str, ours: Listed | None) -> set[str]:
    """The fields of a member that a refresh must not take from the store: the service itself may have written them.

    Redis may have lost its latest writes when a run of Redis ended, and with them the note about such a write. So if
    the note is not from the run `run`, and the committed member `ours` differs from the noted one, all fields are in
    doubt; except the dates, which `merged` compares.
    """
    before = listed_of(note)
    if note is None or note.get("run") == run or before is None or ours is None:
        return set()
    if member_value(before) == member_value(ours):
        return set()
    return {*Member.model_fields, "approved"} - {*DATES}


def compared(
    before: Mapping[str, str], after: Mapping[str, str], stored: StoredMembers, run: str
) -> tuple[dict[str, Reading], dict[str, Note | None]]:
    """Find the members that a refresh must look at. `before`, `after`: all notes, before and after `stored` was read.

    Returns the readings that differ from their note, or whose note has intents or is from another run of Redis than
    `run`; and the notes that other processes changed while the store was read.
    """
    differing: dict[str, Reading] = {}
    others: dict[str, Note | None] = {}
    for member_id in sorted({*after, *stored.states} - stored.bad):
        text, state = after.get(member_id), stored.states.get(member_id)
        if before.get(member_id) != text:
            others[member_id] = parse_note(text)
        elif not _settled(text, state, run):
            reading = Reading(note := parse_note(text), state)
            if note is None or note["intents"] or differs(reading) or note.get("run") != run:
                differing[member_id] = reading
    return differing, others


def _settled(text: str | None, state: State | None, run: str) -> bool:
    """True if the store has the member as the note says, and no write is intended. `text`: the note, as in Redis.

    Compares texts, which is fast, since that is so for most members.
    """
    listed = text_of(state and json_of(state.listed))
    return text is not None and text.startswith(f'{{"intents":[],"listed":{listed},"run":"{run}",')
