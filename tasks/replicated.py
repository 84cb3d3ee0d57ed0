"""The nodelist as nodes and beats have it: a document that all of them keep, followed by the permanent store.

Two entries for each member, so that whoever changes one does not touch the other: `member/<id>`, what it is and whether
it is approved, changed by operators; `dates/<id>`, until when it was harvested, changed by its syncs under their fence.
A first refresh of an empty store commits that nobody is in it, so that from then on the document is what is read.

    commit   an update of the document: on every node and beat, or refused
    follow   what was committed is written to the store, now, or by the next refresh where it is away
    refresh  what others changed in the store goes into the document

For each member is noted what the store was last seen to have (`listed`, `token`), of what of ours it made that
(`wrote`), and what we are about to write there (`intents`): noted before it is written, so that what a refresh finds is
told apart, ours or somebody else's. Only somebody else's is taken in, field by field. A note is changed only by those
who read it as it is.

Before the first refresh, and for a client while Redis is away, the store itself is read.
"""

import logging
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator import Changed, StaleFence, StoreUnavailable
from coordinator.copies import Copy
from coordinator.replicas import Document
from tasks import catalog, instants
from tasks.catalog import Dates
from tasks.member import Member
from tasks.notes import (
    DATED,
    MEMBER,
    NOBODY,
    compared,
    dates_of,
    difference,
    doubtful,
    foreign,
    has,
    intending,
    keeping,
    later,
    lines_of,
    listed_of,
    note_of,
    ours_of,
    parsed,
    seen,
    state_of,
    texts_of,
    whole,
)
from tasks.sources import DATES, WRITTEN, Listed, Outdated, Source, SourceAway, SourceRefused, State, merged
from tasks.view import View

logger = logging.getLogger(__name__)
AT_ONCE, TRIES = 250, 8


class ReplicatedNodelist:
    """`who`: the name under which this process changes it."""

    def __init__(self, document: Document, source: Source, who: str = "") -> None:
        self.document = document
        self.source = source
        self._who = who or socket.gethostname()
        self._view = View()

    def listed(self) -> dict[str, Listed]:
        """All, those that are not approved too."""
        return self._current()[0]

    def members(self) -> list[Member]:
        return [one.member for one in self.listed().values() if one.approved]

    def member(self, node_id: str) -> Member | None:
        """None where it is not there, or not approved."""
        found = self.listed().get(node_id)
        return found.member if found and found.approved else None

    def version(self) -> str:
        """Another one as soon as a member is; its dates aside."""
        return self._current()[1]

    def _current(self) -> tuple[dict[str, Listed], str]:
        try:
            copy = self.document.read()
        except StoreUnavailable:
            copy = Copy(0, "-", {})
        if copy.version == 0:
            return {node_id: state.listed for node_id, state in self.source.read().states.items()}, ""
        return self._view.of(copy)

    def harvested(self, node_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None) -> str | None:
        """Move a member's dates forward; never back. Raises catalog.StaleFence when a greater fence was seen.

        Returns how far the permanent store is: `follow`. `started_from`: where the list says otherwise by now, an
        operator has reset or removed the member meanwhile, nothing is written, and the answer is None.
        """
        self._begin()
        entry = DATED + node_id
        for _ in range(TRIES):
            copy = self._committed(node_id)
            old = dates_of(copy, node_id)
            began = old.last_harvested or instants.NEVER
            if copy.value(MEMBER + node_id) is None or started_from not in (None, began):
                return None
            if copy.fence(entry) > fence:
                raise catalog.StaleFence(node_id, fence, copy.fence(entry))
            new = Dates(*(later(one, other and instants.floor(other)) for one, other in zip(old, dates, strict=True)))
            try:
                if new != old:
                    self._commit(copy, {entry: texts_of(new)}, fence=fence, why="synchronized")
                store = self.follow(node_id)
                now = dates_of(self._committed(node_id), node_id).last_harvested or instants.NEVER
                return store if now >= (new.last_harvested or instants.NEVER) else None  # a reset was met in the store
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
        names = {*found, *(entry.removeprefix(MEMBER) for entry in self.document.fetch().entries(MEMBER))}
        for _ in range(TRIES):
            copy = self._committed(*names)
            olds = {node_id: ours_of(copy, node_id) for node_id in names}
            changes = {one: difference(one, old, keeping(found.get(one), old)) for one, old in olds.items()}
            names = self._commit_all(copy, changes, why=f"import of {path.name}")
            if not names:
                break
        self._follow_all()

    def refresh(self) -> list[str]:
        """Take in what others changed in the store, and write to it what it lacks; a line for each difference.

        Raises SourceAway, and changes nothing, where it cannot be read, or is empty though it was not.
        """
        run, before = self.document.run(), self.document.stored()
        found = self.source.read()
        if not found.states and not found.bad and any(parsed(note)["listed"] for note in before.values()):
            raise SourceAway(f"{self.source.name} is empty, and was not: nothing is changed")
        states, others = compared(before, self.document.stored(), found, run)
        for node_id, note in others.items():  # somebody wrote meanwhile: what we found may be from before
            states |= self._looked_at(node_id, note)
        said = self._take_in(states, run)
        if not found.states and self.document.pointer()[0] == 0:
            self.document.update(NOBODY, fence=1, follow=False, who=self._who, why=f"{self.source.name} is empty")
        self._follow_all(found.bad)
        return said

    def _looked_at(self, node_id: str, note: Any) -> dict[str, tuple[Any, State | None]]:
        """A member's note and state, unless somebody notes another one meanwhile, or it cannot be understood now."""
        try:
            state = self.source.read_one(node_id)
        except SourceRefused as error:
            logger.warning("nodelist: %s: %s", node_id, error)
            return {}
        return {node_id: (note, state)} if self.document.stored_of(node_id) == note else {}

    def _take_in(self, found: Mapping[str, tuple[Any, State | None]], run: str) -> list[str]:
        """What somebody else changed in the store is committed; what is there is noted. A line for each difference.

        `found`: notes and states by member; a state was read while the note was as it is, and in that run of Redis.
        """
        copy, kept = self._committed(*found), set() if self.source.keeps_approval else {"approved"}
        said: dict[str, list[str]] = {}
        changes: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for node_id, (note, state) in found.items():
            theirs, ours = state and state.listed, ours_of(copy, node_id)
            fields = foreign(note, state) - kept - doubtful(note, run, ours)
            new = merged(listed_of(note), theirs, ours, fields) if fields else ours
            changes[new == theirs][node_id] = difference(node_id, ours, new)
            if not fields and new != theirs and not self.document.behind(MEMBER + node_id, DATED + node_id):
                changes[False][node_id] = whole(node_id, ours)  # a late write of ours arrived: it is to be mended
            said[node_id] = lines_of(node_id, ours, new)
        why = f"changed in {self.source.name}"
        refused = self._commit_all(copy, changes[False], why=why)
        refused |= self._commit_all(copy, changes[True], why=why, follow=False)
        lines = [line for node_id in found if node_id not in refused for line in said[node_id]]
        for node_id in found.keys() - refused:  # the others the next time
            self.document.note(node_id, found[node_id][0], seen(*found[node_id], run))
        for line in lines:
            logger.info("nodelist: %s", line)
        return lines

    def _commit_all(self, copy: Copy, changes: Mapping[str, Mapping[str, Any]], **about: Any) -> set[str]:
        """By member, in few updates. Returns the members that somebody changed meanwhile: they are left as they are."""
        refused: set[str] = set()
        names = [node_id for node_id, change in changes.items() if change]
        for portion in (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)):
            for group in ([portion], [[one] for one in portion]):
                missed = [part for part in group if not self._committed_all(copy, changes, part, **about)]
                if not missed:
                    break
            refused |= {one for part in missed for one in part}
        return refused

    def _committed_all(self, copy: Copy, changes: Mapping[str, Any], names: list[str], **about: Any) -> bool:
        try:
            self._commit(copy, {k: v for one in names for k, v in changes[one].items()}, **about)
        except (Changed, StaleFence):
            return False
        return True

    def _follow_all(self, but: Collection[str] = ()) -> None:
        """What the store lacks, while it takes it."""
        behind = {entry.partition("/")[2] for entry in self.document.behind()}
        for node_id in sorted(behind - set(but)):
            try:
                self._follow(node_id)
            except SourceRefused as error:
                logger.warning("nodelist: %s is not written to %s: %s", node_id, self.source.name, error)
                self._pends(node_id, str(error))
            except SourceAway as error:
                logger.warning("nodelist: %d members wait for %s: %s", len(behind), self.source.name, error)
                return

    def _begin(self) -> None:
        """Nobody has refreshed yet: what the store has comes first."""
        if self.document.pointer()[0] == 0:
            self.refresh()

    def follow(self, node_id: str) -> str:
        """Write to the store what is committed of a member: `written`, or why not yet (the next refresh will)."""
        try:
            return self._follow(node_id)
        except (SourceAway, SourceRefused) as error:
            logger.warning("nodelist: %s is not written to %s yet: %s", node_id, self.source.name, error)
            return self._pends(node_id, str(error))

    def _follow(self, node_id: str) -> str:
        for _ in range(TRIES):
            behind = self.document.behind(MEMBER + node_id, DATED + node_id)
            note, wanted = self.document.stored_of(node_id), ours_of(self._committed(node_id), node_id)
            if has(note, wanted):
                for entry, version in behind.items():
                    self.document.followed(entry, version)
                return WRITTEN
            self._write(node_id, note, wanted)
        return self._pends(node_id, f"it changes in {self.source.name} all the while")

    def _pends(self, node_id: str, why: str) -> str:
        """For those who look; what is written or read next of the member is noted without it."""
        if note := self.document.stored_of(node_id):
            self.document.note(node_id, note, note | {"why": why})
        return why

    def _write(self, node_id: str, note: Any, wanted: Listed | None) -> None:
        base, intended = state_of(note), intending(note, wanted, run := self.document.run())
        if not self.document.note(node_id, note, intended):
            return
        try:
            state = self.source.write(node_id, base, wanted, whole=len(intended["intents"]) > 1)
        except Outdated:
            state = self.source.read_one(node_id)
            if self.document.stored_of(node_id) == intended:
                self._take_in({node_id: (intended, state)}, run)
        else:
            self.document.note(node_id, intended, note_of(state, wanted and wanted.model_dump(mode="json"), run))

    def _committed(self, *names: str) -> Copy:
        entries = [prefix + node_id for node_id in names for prefix in (MEMBER, DATED)]
        return self.document.current(*entries) if entries else Copy(0, "-", {})

    def _commit(self, copy: Copy, changes: Mapping[str, Any], **about: Any) -> None:
        self.document.update(changes, expect=copy, who=self._who, **about)
