"""The document and the permanent store follow each other: commits go to the store, its changes into the document.

    commit   a change of the document reaches every node and beat, or is refused
    follow   a committed change is written to the store: an operator's by its author, a sync's by a node within seconds
             (`follower`); where the store is away, the next refresh writes it
    refresh  changes that somebody else made in the store are committed to the document

A note about each member (`store_notes`) tells our writes from other people's. A refresh takes in only other people's
changes, field by field. A process changes a note only if it still stands as that process read it.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from tasks.documents.copy import Copy
from tasks.documents.document import Document
from tasks.documents.errors import Changed, StaleFence
from tasks.nodelist.entries import DATED, ENTRIES, MEMBER, NOBODY, Changes, difference, forgetting, lines_of, listed_in
from tasks.nodelist.protocol import WRITTEN
from tasks.nodelist.store_notes import (
    Note,
    Sighting,
    compared,
    doubtful,
    foreign,
    has,
    intending,
    json_of,
    listed_of,
    note_of,
    parsed,
    seen,
    state_of,
)
from tasks.nodelist.stores import (
    Listed,
    NodelistStore,
    NodelistStoreAway,
    NodelistStoreRefused,
    Outdated,
    Write,
    merged,
)

logger = logging.getLogger(__name__)
AT_ONCE, TRIES = 250, 8


class Reconciler:
    """`who`: the name under which this process changes the document."""

    def __init__(self, document: Document, store: NodelistStore, who: str) -> None:
        self.document = document
        self.store = store
        self._who = who

    def begin(self) -> None:
        """Make sure that somebody has refreshed: the first version of the document comes from the store."""
        if self.document.pointer()[0] == 0:
            self.refresh()

    def committed(self, *names: str) -> Copy:
        """These members' entries, as they are committed now."""
        entries = [prefix + member_id for member_id in names for prefix in ENTRIES]
        return self.document.current(*entries) if entries else Copy(0, "-", {})

    def commit(
        self, copy: Copy, changes: Changes, *, why: str, by: str | None = None, fence: int | None = None,
        follow: bool = True, act: str = "",
    ) -> None:  # fmt: skip
        """Raises Changed or StaleFence where an entry is no longer as `copy` has it."""
        together, who = forgetting(copy, changes), by or self._who
        self.document.update(together, expect=copy, fence=fence, follow=follow, who=who, why=why, act=act)

    def commit_all(self, copy: Copy, changes: Mapping[str, Changes], *, why: str, follow: bool = True) -> set[str]:
        """Commit the changes by member, in few updates. Returns the members that somebody else changed meanwhile."""
        refused: set[str] = set()
        names = [name for name, change in changes.items() if change]
        for portion in (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)):
            for group in ([portion], [[name] for name in portion]):
                missed = [part for part in group if not self._committed(copy, changes, part, why, follow)]
                if not missed:
                    break
            refused |= {name for part in missed for name in part}
        return refused

    def _committed(self, copy: Copy, changes: Mapping[str, Changes], names: list[str], why: str, follow: bool) -> bool:
        together: Changes = {entry: value for name in names for entry, value in changes[name].items()}
        try:
            self.commit(copy, together, why=why, follow=follow)
        except (Changed, StaleFence):
            return False
        return True

    def refresh(self) -> list[str]:
        """Take in other people's changes in the store, and write what the store lacks. Returns a line per difference.

        Raises NodelistStoreAway, and changes nothing, where the store cannot be read, or is empty and was not.
        """
        run, before = self.document.run(), self.document.stored()
        stored = self.store.read()
        if not stored.states and not stored.bad and any(_listed(note) for note in before.values()):
            raise NodelistStoreAway(f"{self.store.name} is empty now, and was not before: nothing is changed")
        sightings, others = compared(before, self.document.stored(), stored, run)
        for member_id, note in others.items():  # somebody wrote meanwhile: the reading may be older than that
            sightings |= self._looked_at(member_id, note)
        lines, spoilt = self._take_in(sightings, run)
        if not stored.states and self.document.pointer()[0] == 0:
            self.document.update(NOBODY, fence=1, follow=False, who=self._who, why=f"{self.store.name} is empty")
        self.follow_all(stored.bad, spoilt)
        return lines

    def _looked_at(self, member_id: str, note: Note | None) -> dict[str, Sighting]:
        """A sighting of the member; none where its note changes meanwhile, or its entry cannot be understood."""
        try:
            state = self.store.read_one(member_id)
        except NodelistStoreRefused as error:
            logger.warning("nodelist: %s: %s", member_id, error)
            return {}
        return {member_id: Sighting(note, state)} if self.document.stored_of(member_id) == note else {}

    def _take_in(self, sightings: Mapping[str, Sighting], run: str) -> tuple[list[str], set[str]]:
        """Commit other people's changes, and note what the store has. Returns a line for each difference, and the
        members that are to be written again.

        Each note in `found` stood while its state was read, and in that run of Redis.
        """
        copy, kept = self.committed(*sightings), set() if self.store.keeps_approval else {"approved"}
        lines: dict[str, list[str]] = {}
        to_write: dict[str, Changes] = {}
        as_stored: dict[str, Changes] = {}
        notes, spoilt = {member_id: seen(sighting, run) for member_id, sighting in sightings.items()}, set[str]()
        for member_id, sighting in sightings.items():
            note, state = sighting
            theirs, ours = state and state.listed, listed_in(copy, member_id)
            fields = foreign(sighting) - kept - doubtful(note, run, ours)
            new = merged(listed_of(note), theirs, ours, fields) if fields else ours
            changes = difference(member_id, ours, new)
            lost = new != theirs or bool(notes[member_id]["intents"])
            if lost and not fields and not self.document.behind(MEMBER + member_id, DATED + member_id):
                # A late write of ours has spoilt the store, or may: the intent lasts until that is mended.
                notes[member_id] = intending(notes[member_id], ours, run)
                spoilt.add(member_id)
            (as_stored if new == theirs else to_write)[member_id] = changes
            lines[member_id] = lines_of(member_id, ours, new)
        why = f"changed in {self.store.name}"
        refused = self.commit_all(copy, to_write, why=why)
        refused |= self.commit_all(copy, as_stored, why=why, follow=False)
        for member_id in sightings.keys() - refused:  # the next refresh looks at the refused ones again
            self.document.note(member_id, sightings[member_id].note, notes[member_id])
        differences = [line for member_id in sightings if member_id not in refused for line in lines[member_id]]
        for line in differences:
            logger.info("nodelist: %s", line)
        return differences, spoilt

    def follow_all(self, but: Collection[str] = (), also: Collection[str] = ()) -> None:
        """Write everything that the store lacks, until the store goes away."""
        self.follow_some({entry.partition("/")[2] for entry in self.document.behind()} - {*but} | {*also})

    def follow_some(self, names: Collection[str]) -> bool:
        """Write what is committed of these members. False where the store is away."""
        left = sorted(names)
        while left:
            portion, left = left[: self.store.at_once], left[self.store.at_once :]
            try:
                self.write(portion)
            except NodelistStoreAway as error:
                waiting = [*portion, *left]
                logger.warning("nodelist: %d members wait for %s: %s", len(waiting), self.store.name, error)
                for member_id in waiting:
                    self._pends(member_id, str(error))
                return False
        return True

    def follow(self, member_id: str) -> str:
        """Write a member, as committed, to LDAP or XML. Returns WRITTEN, or why it is left to the next refresh."""
        try:
            return self.write([member_id])[member_id]
        except NodelistStoreAway as error:
            logger.warning("nodelist: %s is not written to %s yet: %s", member_id, self.store.name, error)
            return self._pends(member_id, str(error))

    def write(self, names: Sequence[str]) -> dict[str, str]:
        """Write what is committed of these members. Returns WRITTEN for each, or why it is left to the next refresh.

        Raises NodelistStoreAway.
        """
        outcomes: dict[str, str] = {}
        for _ in range(TRIES):
            left = [name for name in names if name not in outcomes]
            if not left:
                return outcomes
            behind = self.document.behind(*(prefix + name for name in left for prefix in ENTRIES))
            notes, copy = {name: self.document.stored_of(name) for name in left}, self.committed(*left)
            committed = {name: listed_in(copy, name) for name in left}
            outcomes |= {name: WRITTEN for name in left if has(notes[name], committed[name])}
            for entry, version in behind.items():
                if entry.partition("/")[2] in outcomes:
                    self.document.followed(entry, version)
            outcomes |= self._try_to_write(
                {name: (notes[name], committed[name]) for name in left if name not in outcomes}
            )
        why = f"somebody keeps changing it in {self.store.name}"
        return outcomes | {name: self._pends(name, why) for name in names if name not in outcomes}

    def _try_to_write(self, wanted: Mapping[str, tuple[Note | None, Listed | None]]) -> dict[str, str]:
        """Returns the reason for each member that the store refuses."""
        run, refused = self.document.run() if wanted else "", dict[str, str]()
        intended = {name: intending(note, new, run) for name, (note, new) in wanted.items()}
        intended = {name: note for name, note in intended.items() if self.document.note(name, wanted[name][0], note)}
        writes = {
            name: Write(state_of(wanted[name][0]), wanted[name][1], whole=len(note["intents"]) > 1)
            for name, note in intended.items()
        }
        for name, outcome in (self.store.write(writes) if writes else {}).items():
            try:
                if isinstance(outcome, NodelistStoreRefused):
                    raise outcome
                if isinstance(outcome, Outdated):
                    self._look_again(name, intended[name], run)
                else:
                    self.document.note(name, intended[name], note_of(outcome, json_of(wanted[name][1]), run))
            except NodelistStoreRefused as error:
                logger.warning("nodelist: %s is not written to %s: %s", name, self.store.name, error)
                refused[name] = self._pends(name, str(error))
        return refused

    def _look_again(self, member_id: str, note: Note, run: str) -> None:
        """Somebody else has changed the member in the store: take that in."""
        state = self.store.read_one(member_id)
        if self.document.stored_of(member_id) == note:
            self._take_in({member_id: Sighting(note, state)}, run)

    def _pends(self, member_id: str, why: str) -> str:
        """Note the reason for people to see. The next note about the member drops it."""
        if note := self.document.stored_of(member_id):
            self.document.note(member_id, note, note | {"why": why})
        return why


def _listed(text: str) -> bool:
    note = parsed(text)
    return bool(note and note["listed"])
