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
from tasks.nodelist.entries import DATED, MEMBER, NOBODY, Changes, difference, lines_of, listed_in
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
        entries = [prefix + member_id for member_id in names for prefix in (MEMBER, DATED)]
        return self.document.current(*entries) if entries else Copy(0, "-", {})

    def commit(
        self, copy: Copy, changes: Changes, *, why: str, by: str | None = None, fence: int | None = None,
        follow: bool = True,
    ) -> None:  # fmt: skip
        """Raises Changed or StaleFence where an entry is no longer as `copy` has it."""
        self.document.update(changes, expect=copy, fence=fence, follow=follow, who=by or self._who, why=why)

    def commit_all(self, copy: Copy, changes: Mapping[str, Changes], *, why: str, follow: bool = True) -> set[str]:
        """Commit the changes by member, in few updates. Returns the members that somebody else changed meanwhile."""
        refused: set[str] = set()
        names = [member_id for member_id, change in changes.items() if change]
        for portion in (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)):
            for group in ([portion], [[one] for one in portion]):
                missed = [part for part in group if not self._committed(copy, changes, part, why, follow)]
                if not missed:
                    break
            refused |= {one for part in missed for one in part}
        return refused

    def _committed(self, copy: Copy, changes: Mapping[str, Changes], names: list[str], why: str, follow: bool) -> bool:
        together: Changes = {entry: value for one in names for entry, value in changes[one].items()}
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
        found = self.store.read()
        if not found.states and not found.bad and any(_listed(note) for note in before.values()):
            raise NodelistStoreAway(f"{self.store.name} is empty now, and was not before: nothing is changed")
        sightings, others = compared(before, self.document.stored(), found, run)
        for member_id, note in others.items():  # somebody wrote meanwhile: the reading may be older than that
            sightings |= self._looked_at(member_id, note)
        lines, spoilt = self._take_in(sightings, run)
        if not found.states and self.document.pointer()[0] == 0:
            self.document.update(NOBODY, fence=1, follow=False, who=self._who, why=f"{self.store.name} is empty")
        self.follow_all(found.bad, spoilt)
        return lines

    def _looked_at(self, member_id: str, note: Note | None) -> dict[str, Sighting]:
        """A sighting of the member; none where its note changes meanwhile, or its entry cannot be understood."""
        try:
            state = self.store.read_one(member_id)
        except NodelistStoreRefused as error:
            logger.warning("nodelist: %s: %s", member_id, error)
            return {}
        return {member_id: Sighting(note, state)} if self.document.stored_of(member_id) == note else {}

    def _take_in(self, found: Mapping[str, Sighting], run: str) -> tuple[list[str], set[str]]:
        """Commit other people's changes, and note what the store has. Returns a line for each difference, and the
        members that are to be written again.

        Each note in `found` stood while its state was read, and in that run of Redis.
        """
        copy, kept = self.committed(*found), set() if self.store.keeps_approval else {"approved"}
        lines: dict[str, list[str]] = {}
        to_write: dict[str, Changes] = {}
        as_stored: dict[str, Changes] = {}
        notes, spoilt = {member_id: seen(sighting, run) for member_id, sighting in found.items()}, set[str]()
        for member_id, sighting in found.items():
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
        for member_id in found.keys() - refused:  # the next refresh looks at the refused ones again
            self.document.note(member_id, found[member_id].note, notes[member_id])
        told = [line for member_id in found if member_id not in refused for line in lines[member_id]]
        for line in told:
            logger.info("nodelist: %s", line)
        return told, spoilt

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
        """Write a member's committed value to the store. Returns WRITTEN, or why it is left to the next refresh."""
        try:
            return self.write([member_id])[member_id]
        except NodelistStoreAway as error:
            logger.warning("nodelist: %s is not written to %s yet: %s", member_id, self.store.name, error)
            return self._pends(member_id, str(error))

    def write(self, names: Sequence[str]) -> dict[str, str]:
        """Write what is committed of these members. Returns WRITTEN for each, or why it is left to the next refresh.

        Raises NodelistStoreAway.
        """
        told: dict[str, str] = {}
        for _ in range(TRIES):
            left = [member_id for member_id in names if member_id not in told]
            if not left:
                return told
            behind = self.document.behind(*(prefix + member_id for member_id in left for prefix in (MEMBER, DATED)))
            notes, copy = {one: self.document.stored_of(one) for one in left}, self.committed(*left)
            wanted = {member_id: listed_in(copy, member_id) for member_id in left}
            told |= {member_id: WRITTEN for member_id in left if has(notes[member_id], wanted[member_id])}
            for entry, version in behind.items():
                if entry.partition("/")[2] in told:
                    self.document.followed(entry, version)
            told |= self._try_to_write({one: (notes[one], wanted[one]) for one in left if one not in told})
        why = f"somebody keeps changing it in {self.store.name}"
        return told | {one: self._pends(one, why) for one in names if one not in told}

    def _try_to_write(self, wanted: Mapping[str, tuple[Note | None, Listed | None]]) -> dict[str, str]:
        """Returns the reason for each member that the store refuses."""
        run, refused = self.document.run() if wanted else "", dict[str, str]()
        intended = {one: intending(note, new, run) for one, (note, new) in wanted.items()}
        intended = {one: note for one, note in intended.items() if self.document.note(one, wanted[one][0], note)}
        writes = {
            one: Write(state_of(wanted[one][0]), wanted[one][1], whole=len(note["intents"]) > 1)
            for one, note in intended.items()
        }
        for one, outcome in (self.store.write(writes) if writes else {}).items():
            try:
                if isinstance(outcome, NodelistStoreRefused):
                    raise outcome
                if isinstance(outcome, Outdated):
                    self._look_again(one, intended[one], run)
                else:
                    self.document.note(one, intended[one], note_of(outcome, json_of(wanted[one][1]), run))
            except NodelistStoreRefused as error:
                logger.warning("nodelist: %s is not written to %s: %s", one, self.store.name, error)
                refused[one] = self._pends(one, str(error))
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
