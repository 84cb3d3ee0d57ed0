"""The nodelist as nodes and beats have it: a document that all of them keep, followed by the permanent store.

Two entries for each member, so that whoever changes one does not touch the other: `member/<id>`, what it is and whether
it is approved, changed by operators; `dates/<id>`, until when it was harvested, changed by its syncs under their fence.

    commit   an update of the document: on every node and beat, or refused
    follow   what was committed is written to the store, now, or by the next refresh where it is away
    refresh  what others changed in the store goes into the document

For each member is noted what the store was last seen to have (`listed`, `token`), of what of ours it made that
(`wrote`), and what we are about to write there (`intents`): noted before it is written, so that what a refresh finds is
told apart, ours or somebody else's. Only somebody else's is taken in, field by field. A note is changed only by those
who read it as it is.

Before the first refresh, and for a client while Redis is away, the store itself is read.
"""

import hashlib
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from coordinator import Changed, StaleFence, StoreUnavailable
from coordinator.copies import Copy
from coordinator.replicas import Document
from tasks import catalog, instants
from tasks.catalog import Dates
from tasks.member import Member
from tasks.notes import (
    DATED,
    MEMBER,
    UNKNOWN,
    dates_of,
    difference,
    has,
    is_foreign,
    keeping,
    later,
    lines_of,
    listed_of,
    note_of,
    ours_of,
    state_of,
    texts_of,
)
from tasks.sources import DATES, WRITTEN, Listed, Outdated, Source, SourceAway, SourceRefused, State, merged

logger = logging.getLogger(__name__)

AT_ONCE = 250
TRIES = 8


class Pending(NamedTuple):
    """The version that the store lacks, and why; "" where that is not known, or it is just being written."""

    version: int
    why: str

    @property
    def reason(self) -> str:
        return self.why or "it is about to be written"


class ReplicatedNodelist:
    """`who`: the name under which this process changes it."""

    def __init__(self, document: Document, source: Source, who: str = "") -> None:
        self.document = document
        self.source = source
        self._who = who or socket.gethostname()
        self._read: tuple[int, dict[str, Listed], str] = (-1, {}, "")

    def listed(self) -> dict[str, Listed]:
        """All, those that are not approved too."""
        return self._current()[1]

    def members(self) -> list[Member]:
        return [one.member for one in self.listed().values() if one.approved]

    def member(self, node_id: str) -> Member | None:
        """None where it is not there, or not approved."""
        found = self.listed().get(node_id)
        return found.member if found and found.approved else None

    def version(self) -> str:
        """Another one as soon as a member is; its dates aside."""
        return self._current()[2]

    def _current(self) -> tuple[int, dict[str, Listed], str]:
        try:
            copy = self.document.read()
        except StoreUnavailable:
            copy = Copy(0, "-", {})
        if copy.version == 0:
            found = {node_id: state.listed for node_id, state in self.source.read().states.items()}
            return 0, found, ""
        if copy.version != self._read[0]:
            said = "\n".join(f"{entry} {raw}" for entry, raw in sorted(copy.state.items()) if entry.startswith(MEMBER))
            names = sorted(entry.removeprefix(MEMBER) for entry in copy.entries(MEMBER))
            found = {node_id: one for node_id in names if (one := ours_of(copy, node_id))}
            self._read = copy.version, found, hashlib.sha256(said.encode()).hexdigest()
        return self._read

    def harvested(self, node_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None) -> str | None:
        """Move a member's dates forward; never back. Raises catalog.StaleFence when a greater fence was seen.

        Returns how far the permanent store is: `follow`. `started_from`: where the list says otherwise by now, an
        operator has reset the member meanwhile, nothing is written, and the answer is None.
        """
        self._begin()
        entry = DATED + node_id
        for _ in range(TRIES):
            copy = self._committed(node_id)
            old = dates_of(copy, node_id)
            if started_from is not None and (old.last_harvested or instants.NEVER) != started_from:
                return None
            if copy.fence(entry) > fence:
                raise catalog.StaleFence(node_id, fence, copy.fence(entry))
            new = Dates(*(later(one, other and instants.floor(other)) for one, other in zip(old, dates, strict=True)))
            try:
                if new != old:
                    self._commit(copy, {entry: texts_of(new)}, fence=fence, why="synchronized")
                return self.follow(node_id)
            except (Changed, StaleFence):
                continue
        raise Changed(f"the dates of {node_id} change all the while")

    def reset(self, node_id: str, why: str = "reset") -> str:
        """As if it had never been harvested. KeyError for an unknown member. Returns as `change` does."""

        def never(one: Listed | None) -> Listed:
            if one is None:
                raise KeyError(node_id)
            return one.model_copy(update={"member": one.member.model_copy(update=dict.fromkeys(DATES, instants.NEVER))})

        return self.change(node_id, never, why=why)

    def change(self, node_id: str, to: Callable[[Listed | None], Listed | None], *, why: str) -> str:
        """An operator's hand: `to` gives what is to be listed. Returns how far the permanent store is: `follow`."""
        self._begin()
        for _ in range(TRIES):
            copy = self._committed(node_id)
            before = ours_of(copy, node_id)
            after = to(before)
            try:
                self._commit(copy, difference(node_id, before, after), why=why)
            except (Changed, StaleFence):
                continue
            return self.follow(node_id)
        raise Changed(f"{node_id} changes all the while")

    def import_file(self, path: Path) -> None:
        """Replace the list by that of a document; dates that it does not name stay."""
        found = self.source.replacement(path)
        if found is None:  # the document is the store itself, and was replaced
            with suppress(StoreUnavailable):  # nodes that are there will refresh, or those that come
                self.refresh()
            return
        self._begin()
        copy = self.document.fetch()
        listed = {node_id: ours_of(copy, node_id) for node_id in {*found, *copy.entries(MEMBER)}}
        self._commit_all(
            copy,
            {one: difference(one, old, keeping(found.get(one), old)) for one, old in listed.items()},
            why=f"import of {path.name}",
        )
        self._follow_all()

    def refresh(self) -> list[str]:
        """Take in what others changed in the store, and write to it what it lacks; a line for each difference.

        Raises SourceAway, and changes nothing, where it cannot be read, or is empty though it was not.
        """
        before = self.document.stored()
        found = self.source.read()
        if not found.states and any(note["listed"] for note in before.values()):
            raise SourceAway(f"{self.source.name} is empty, and was not: nothing is changed")
        after, copy = self.document.stored(), self.document.fetch()
        changes: dict[str, dict[str, Any]] = {}
        said: list[str] = []
        for node_id in sorted({*after, *found.states} - found.bad):
            note, state = after.get(node_id), found.states.get(node_id)
            if before.get(node_id) != note:  # somebody wrote meanwhile: what we found may be from before
                said += self._take_in(node_id, note, self.source.read_one(node_id))
            elif is_foreign(note, state):
                ours = ours_of(copy, node_id)
                new = merged(listed_of(note), state and state.listed, ours)
                changes[node_id] = difference(node_id, ours, new)
                said += lines_of(node_id, ours, new)
        refused = self._commit_all(copy, changes, why=f"changed in {self.source.name}")
        for node_id in changes.keys() - refused:
            self.document.note(node_id, after.get(node_id), note_of(found.states.get(node_id), UNKNOWN))
        self._follow_all(found.bad)
        for line in said:
            logger.info("nodelist: %s", line)
        return said

    def _commit_all(self, copy: Copy, changes: Mapping[str, Mapping[str, Any]], *, why: str) -> set[str]:
        """By member, in few updates; the members that somebody changed meanwhile are left for the next time."""
        refused: set[str] = set()
        names = [node_id for node_id, change in changes.items() if change]
        for portion in (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)):
            for group in ([portion], [[one] for one in portion]):
                missed = [part for part in group if not self._committed_all(copy, changes, part, why)]
                if not missed:
                    break
            refused |= {one for part in missed for one in part}
        return refused

    def _committed_all(self, copy: Copy, changes: Mapping[str, Mapping[str, Any]], names: list[str], why: str) -> bool:
        try:
            self._commit(copy, {k: v for one in names for k, v in changes[one].items()}, why=why)
        except (Changed, StaleFence):
            return False
        return True

    def _follow_all(self, but: Collection[str] = ()) -> None:
        for node_id in sorted({entry.partition("/")[2] for entry in self.document.behind()} - set(but)):
            self.follow(node_id)

    def _begin(self) -> None:
        """Nobody has refreshed yet: what the store has comes first."""
        if self.document.pointer()[0] == 0:
            self.refresh()

    def _take_in(self, node_id: str, note: Any, state: State | None) -> list[str]:
        """What somebody else changed in the store is committed; what we wrote there is only noted."""
        said: list[str] = []
        if is_foreign(note, state):
            copy = self._committed(node_id)
            ours = ours_of(copy, node_id)
            new = merged(listed_of(note), state and state.listed, ours)
            try:
                self._commit(copy, difference(node_id, ours, new), why=f"changed in {self.source.name}")
            except (Changed, StaleFence):
                return []  # the next time
            said = lines_of(node_id, ours, new)
        theirs = state and state.listed.model_dump(mode="json")
        ours_there = theirs in (note or {}).get("intents", [])
        self.document.note(node_id, note, note_of(state, theirs if ours_there else UNKNOWN))
        return said

    def follow(self, node_id: str) -> str:
        """Write to the store what is committed of a member: `written`, or why not yet (the next refresh will)."""
        try:
            for _ in range(TRIES):
                behind = self.document.behind(MEMBER + node_id, DATED + node_id)
                note, wanted = self.document.stored_of(node_id), ours_of(self._committed(node_id), node_id)
                if has(note, wanted):
                    for entry, version in behind.items():
                        self.document.followed(entry, version)
                    return WRITTEN
                self._write(node_id, note, wanted)
        except (SourceAway, SourceRefused) as error:
            logger.warning("nodelist: %s is not written to %s yet: %s", node_id, self.source.name, error)
            return self._pends(node_id, str(error))
        return self._pends(node_id, f"it changes in {self.source.name} all the while")

    def _pends(self, node_id: str, why: str) -> str:
        """For those who look; what is written or read next of the member is noted without it."""
        if note := self.document.stored_of(node_id):
            self.document.note(node_id, note, note | {"why": why})
        return why

    def pending(self) -> dict[str, Pending]:
        """What the store lacks, by member."""
        versions: dict[str, int] = {}
        for entry, version in sorted(self.document.behind().items()):
            node_id = entry.partition("/")[2]
            versions[node_id] = max(version, versions.get(node_id, 0))
        notes = {node_id: self.document.stored_of(node_id) or {} for node_id in versions}
        return {node_id: Pending(version, notes[node_id].get("why", "")) for node_id, version in versions.items()}

    def _write(self, node_id: str, note: Any, wanted: Listed | None) -> None:
        text = wanted and wanted.model_dump(mode="json")
        base = state_of(note)
        known = note or {"wrote": UNKNOWN, "intents": []}
        intended = note_of(base, known["wrote"]) | {"intents": [*known["intents"], text][-5:]}
        if not self.document.note(node_id, note, intended):
            return
        try:
            state = self.source.write(node_id, base, wanted)
        except Outdated:
            self._take_in(node_id, intended, self.source.read_one(node_id))
        else:
            self.document.note(node_id, intended, note_of(state, text))

    def _committed(self, node_id: str) -> Copy:
        return self.document.current(MEMBER + node_id, DATED + node_id)

    def _commit(self, copy: Copy, changes: Mapping[str, Any], *, why: str, fence: int | None = None) -> None:
        self.document.update(changes, fence=fence, expect=copy, who=self._who, why=why)
