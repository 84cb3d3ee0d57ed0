"""Keeps the replicated nodelist, a document, and its permanent store (XML or LDAP) the same, in both directions.

    commit      a change of the document reaches every node and beat, or is refused
    write back  a committed change is written to the store: at once by the process of an operator; for a sync by a node
                within seconds (`write_back`). If the store is away, the next refresh writes the change
    refresh     changes that others, outside the service, made in the store are committed to the document

A note about each member in Redis (`store_notes`) tells our writes from those of others. A refresh takes over only the
changes of others, field by field. A process replaces a note only if no other has replaced it since the process read it.
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
    Reading,
    compared,
    fields_changed_by_others,
    fields_in_doubt,
    is_written,
    json_of,
    listed_of,
    note_after,
    note_of,
    parse_note,
    state_of,
    with_intent,
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
    """Moves changes between the document and its permanent store. `who`: the author of this process's commits."""

    def __init__(self, document: Document, store: NodelistStore, who: str) -> None:
        self.document = document
        self.store = store
        self._who = who

    def ensure_refreshed(self) -> None:
        """Make the first version of the document from the permanent store, if there is no version yet."""
        if self.document.pointer()[0] == 0:
            self.refresh()

    def committed(self, *names: str) -> Copy:
        """A copy of the document with the committed entries of these members only, read from Redis."""
        entries = [prefix + member_id for member_id in names for prefix in ENTRIES]
        return self.document.current(*entries) if entries else Copy(0, "-", {})

    def commit(
        self, copy: Copy, changes: Changes, *, why: str, by: str | None = None, fence: int | None = None,
        write_back: bool = True, act: str = "",
    ) -> None:  # fmt: skip
        """Commit changes of entries that were read as `copy`. Raises Changed or StaleFence where `copy` is out of date.

        `why`, `by`: the reason and the author that the history of the nodelist keeps; `by` None: this process. `fence`:
        of the job that commits, so that an older run cannot; None: no job does. `write_back` False: the permanent store
        has the changes already. `act`: an entry for the audit trail, as `act_of` gives it; "": none.
        """
        together, who = forgetting(copy, changes), by or self._who
        self.document.update(together, expect=copy, fence=fence, write_back=write_back, who=who, why=why, act=act)

    def commit_all(self, copy: Copy, changes: Mapping[str, Changes], *, why: str, write_back: bool = True) -> set[str]:
        """Commit changes, which are given by member, in few updates of the document.

        Returns the members whose changes were refused, since others have changed these members meanwhile.
        """
        refused: set[str] = set()
        names = [name for name, change in changes.items() if change]
        for portion in (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)):
            # A member that was changed meanwhile makes the common update fail; then each member gets its own update.
            for group in ([portion], [[name] for name in portion]):
                missed = [part for part in group if not self._try_commit(copy, changes, part, why, write_back)]
                if not missed:
                    break
            refused |= {name for part in missed for name in part}
        return refused

    def _try_commit(
        self, copy: Copy, changes: Mapping[str, Changes], names: list[str], why: str, write_back: bool
    ) -> bool:
        together: Changes = {entry: value for name in names for entry, value in changes[name].items()}
        try:
            self.commit(copy, together, why=why, write_back=write_back)
        except (Changed, StaleFence):
            return False
        return True

    def refresh(self) -> list[str]:
        """Commit the changes that others made in the store, and write to the store the changes that it lacks.

        Returns a sentence for each committed difference. Raises NodelistStoreAway, and changes nothing, where the store
        cannot be read, or has lost all its members.
        """
        run, before = self.document.run(), self.document.stored()
        stored = self.store.read()
        if not stored.states and not stored.bad and any(_listed(note) for note in before.values()):
            raise NodelistStoreAway(f"{self.store.name} is empty now, and was not before: nothing is changed")
        readings, others = compared(before, self.document.stored(), stored, run)
        for member_id, note in others.items():  # members that another process wrote while the store was read
            readings |= self._read_again(member_id, note)
        lines, overwritten = self._merge(readings, run)
        if not stored.states and self.document.pointer()[0] == 0:
            self.document.update(NOBODY, fence=1, write_back=False, who=self._who, why=f"{self.store.name} is empty")
        self.write_back_pending(skip=stored.bad, also=overwritten)
        return lines

    def _read_again(self, member_id: str, note: Note | None) -> dict[str, Reading]:
        """Read one member from the store. `note`: the note about it, which must be the same afterwards.

        Returns the reading by id; empty where the note has changed, or the member's entry in the store is invalid.
        """
        try:
            state = self.store.read_one(member_id)
        except NodelistStoreRefused as error:
            logger.warning("nodelist: the permanent store's entry of %s cannot be read: %s", member_id, error)
            return {}
        return {member_id: Reading(note, state)} if self.document.stored_of(member_id) == note else {}

    def _merge(self, readings: Mapping[str, Reading], run: str) -> tuple[list[str], set[str]]:
        """Commit what others changed in the store, and note the store's values of the members.

        Returns a sentence for each difference, and the members that must be written to the store again. `readings`: by
        member, the state in the store, and the note that was valid meanwhile. `run`: the id of Redis' run at that time.
        """
        copy, kept = self.committed(*readings), set() if self.store.keeps_approval else {"approved"}
        lines: dict[str, list[str]] = {}
        to_write: dict[str, Changes] = {}
        as_stored: dict[str, Changes] = {}
        notes, overwritten = {name: note_after(reading, run) for name, reading in readings.items()}, set[str]()
        for member_id, reading in readings.items():
            note, state = reading
            theirs, ours = state and state.listed, listed_in(copy, member_id)
            fields = fields_changed_by_others(reading) - kept - fields_in_doubt(note, run, ours)
            new = merged(listed_of(note), theirs, ours, fields) if fields else ours
            changes = difference(member_id, ours, new)
            lost = new != theirs or bool(notes[member_id]["intents"])
            if lost and not fields and not self.document.behind(MEMBER + member_id, DATED + member_id):
                # A late write of ours has overwritten the value, or may do so: keep an intent until the next write.
                notes[member_id] = with_intent(notes[member_id], ours, run)
                overwritten.add(member_id)
            (as_stored if new == theirs else to_write)[member_id] = changes
            lines[member_id] = lines_of(member_id, ours, new)
        why = f"changed in {self.store.name}"
        refused = self.commit_all(copy, to_write, why=why)
        refused |= self.commit_all(copy, as_stored, why=why, write_back=False)
        for member_id in readings.keys() - refused:  # the next refresh reads the refused members again
            self.document.note(member_id, readings[member_id].note, notes[member_id])
        differences = [line for member_id in readings if member_id not in refused for line in lines[member_id]]
        for line in differences:
            logger.info("nodelist: %s", line)
        return differences, overwritten

    def write_back_pending(self, *, skip: Collection[str] = (), also: Collection[str] = ()) -> None:
        """Write to the store all members whose newest version it lacks, except `skip`, and also the members `also`."""
        self.write_back_all({entry.partition("/")[2] for entry in self.document.behind()} - {*skip} | {*also})

    def write_back_all(self, names: Collection[str]) -> bool:
        """Write the committed values of these members to the store. Returns False where the store cannot be reached."""
        left = sorted(names)
        while left:
            portion, left = left[: self.store.at_once], left[self.store.at_once :]
            try:
                self.write(portion)
            except NodelistStoreAway as error:
                waiting = [*portion, *left]
                number = len(waiting)
                logger.warning("nodelist: %d members are not written to %s yet: %s", number, self.store.name, error)
                for member_id in waiting:
                    self._note_pending(member_id, str(error))
                return False
        return True

    def write_back(self, member_id: str) -> str:
        """Write the committed values of a member to the store. Returns WRITTEN, or why the next refresh must do it."""
        try:
            return self.write([member_id])[member_id]
        except NodelistStoreAway as error:
            logger.warning("nodelist: %s is not written to %s yet: %s", member_id, self.store.name, error)
            return self._note_pending(member_id, str(error))

    def write(self, names: Sequence[str]) -> dict[str, str]:
        """Write the committed values of these members to the store, in up to TRIES attempts.

        Returns for each member WRITTEN, or why the next refresh must write it. Raises NodelistStoreAway.
        """
        outcomes: dict[str, str] = {}
        for _ in range(TRIES):
            left = [name for name in names if name not in outcomes]
            if not left:
                return outcomes
            behind = self.document.behind(*(prefix + name for name in left for prefix in ENTRIES))
            notes, copy = {name: self.document.stored_of(name) for name in left}, self.committed(*left)
            committed = {name: listed_in(copy, name) for name in left}
            outcomes |= {name: WRITTEN for name in left if is_written(notes[name], committed[name])}
            for entry, version in behind.items():
                if entry.partition("/")[2] in outcomes:
                    self.document.followed(entry, version)
            outcomes |= self._try_to_write(
                {name: (notes[name], committed[name]) for name in left if name not in outcomes}
            )
        why = f"it keeps changing in {self.store.name}"
        return outcomes | {name: self._note_pending(name, why) for name in names if name not in outcomes}

    def _try_to_write(self, wanted: Mapping[str, tuple[Note | None, Listed | None]]) -> dict[str, str]:
        """Write these members to the store once, if no other process has changed their notes.

        `wanted`: by member, the note as it was read and the value to write. Returns the reason for each refused member.
        """
        run, refused = self.document.run() if wanted else "", dict[str, str]()
        intended = {name: with_intent(note, new, run) for name, (note, new) in wanted.items()}
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
                    self._merge_outdated(name, intended[name], run)
                else:
                    self.document.note(name, intended[name], note_of(outcome, json_of(wanted[name][1]), run))
            except NodelistStoreRefused as error:
                logger.warning("nodelist: %s is not written to %s: %s", name, self.store.name, error)
                refused[name] = self._note_pending(name, str(error))
        return refused

    def _merge_outdated(self, member_id: str, note: Note, run: str) -> None:
        """Commit what others have changed in the store about a member, since this process read it. `note`: the note
        before, without which another process has done so.
        """
        state = self.store.read_one(member_id)
        if self.document.stored_of(member_id) == note:
            self._merge({member_id: Reading(note, state)}, run)

    def _note_pending(self, member_id: str, why: str) -> str:
        """Note in Redis, for operators, why the store lacks a member's newest version. Returns the reason `why`.

        The next note about the member drops the reason.
        """
        if note := self.document.stored_of(member_id):
            self.document.note(member_id, note, note | {"why": why})
        return why


def _listed(text: str) -> bool:
    note = parse_note(text)
    return bool(note and note["listed"])
