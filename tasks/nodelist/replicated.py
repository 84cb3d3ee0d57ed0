"""The replicated nodelist: a document that all nodes and beats keep, and a permanent store that follows it.

A process reads the document. It reads the store itself only before the first refresh, and in a client while Redis is
away. A first refresh of an empty store commits that the list is empty; from then on processes read the document.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import cast

from coordinator import StoreUnavailable
from tasks import instants
from tasks.catalog.catalog import Superseded
from tasks.documents.copy import Copy
from tasks.documents.document import Document
from tasks.documents.errors import Changed, StaleFence
from tasks.member_node.member import Member
from tasks.nodelist.entries import (
    DATED,
    KEPT,
    MEMBER,
    Kept,
    View,
    dates_in,
    dates_value,
    difference,
    keeping,
    lines_of,
    listed_in,
)
from tasks.nodelist.protocol import SOON, WRITTEN, Dates
from tasks.nodelist.reconcile import TRIES, Reconciler
from tasks.nodelist.stores import Listed, NodelistStore, NodelistStoreAway
from tasks.nodelist.xml_format import read_nodelist

ActOf = Callable[[Listed | None, Listed | None], str]


def no_act(before: Listed | None, after: Listed | None) -> str:
    return ""


class ReplicatedNodelist:
    """`who`: the name under which this process changes the list."""

    def __init__(self, document: Document, store: NodelistStore, who: str = "") -> None:
        self.document = document
        self.store = store
        self.reconciler = Reconciler(document, store, who or socket.gethostname())
        self._view = View()

    def listed(self) -> dict[str, Listed]:
        """All members by id, also those that are not approved."""
        return self._current()[0]

    def members(self) -> list[Member]:
        return [listed.member for listed in self.listed().values() if listed.approved]

    def member(self, member_id: str) -> Member | None:
        """None where the member is not in the list, or is not approved."""
        listed = self._committed(member_id) or self.listed().get(member_id)
        return listed.member if listed and listed.approved else None

    def _committed(self, member_id: str) -> Listed | None:
        """The member as it is committed, however many others there are. None: only a read of the whole list can say."""
        copies = self.document.copies
        try:
            if self.document.pointer()[0] < (copies.committed().version if copies else 1):
                return None  # Redis lost its end, or nothing is committed
            return listed_in(self.reconciler.committed(member_id), member_id)
        except StoreUnavailable:
            return None

    def version(self) -> str:
        """A text that changes with any change of the list, its dates aside."""
        return self._current()[1]

    def _current(self) -> tuple[dict[str, Listed], str]:
        try:
            copy = self.document.read()
        except StoreUnavailable:
            copy = Copy(0, "-", {})
        if copy.version == 0:
            return {member_id: state.listed for member_id, state in self.store.read().states.items()}, ""
        return self._view.of(copy)

    def harvested(
        self, member_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None
    ) -> str | None:
        """See `Nodelist.harvested`."""
        self.reconciler.begin()
        entry = DATED + member_id
        for _ in range(TRIES):
            copy = self.reconciler.committed(member_id)
            old = dates_in(copy, member_id)
            began = old.last_harvested or instants.NEVER
            if copy.value(MEMBER + member_id) is None or started_from not in (None, began):
                return None
            if copy.fence(entry) > fence:
                raise Superseded(member_id, fence, copy.fence(entry))
            new = old.later(dates.floored())
            if new == old:
                return self._lacks(member_id) if self.document.behind(MEMBER + member_id, entry) else WRITTEN
            try:
                self.reconciler.commit(copy, {entry: dates_value(new)}, fence=fence, why="synchronized")
                return self._lacks(member_id)
            except (Changed, StaleFence):
                continue
        raise Changed(f"somebody keeps changing the dates of {member_id}")

    def _lacks(self, member_id: str) -> str:
        """Why the store lacks the member's newest version."""
        return str((self.document.stored_of(member_id) or {}).get("why") or SOON)

    def reset(self, member_id: str, why: str = "reset", by: str | None = None, act: ActOf = no_act) -> str:
        """Have the member harvested from its beginning. KeyError for an unknown member. Returns as `change` does."""

        def never(listed: Listed | None) -> Listed:
            if listed is None:
                raise KeyError(member_id)
            return listed.model_copy(update={"member": Dates.of(listed.member).begun_anew().put_on(listed.member)})

        return self.change(member_id, never, why=why, by=by, act=act)

    def purged(self, member_id: str, *, fence: int, why: str, by: str, act: str = "") -> None:
        """Have the history say that the objects of a former member go. Raises ValueError where it is in the list."""
        self.reconciler.begin()
        copy = self.reconciler.committed(member_id)
        if (listed := listed_in(copy, member_id)) is not None:
            raise ValueError(f"{member_id} is in the list, at {listed.member.base_url}: remove it first")
        self.reconciler.commit(copy, {MEMBER + member_id: None}, fence=fence, follow=False, why=why, by=by, act=act)

    def change(
        self, member_id: str, to: Callable[[Listed | None], Listed | None], *, why: str, by: str | None = None,
        act: ActOf = no_act,
    ) -> str:  # fmt: skip
        """Commit what `to` makes of a member, for an operator; None stands for a member that is not listed.

        `by`: the operator; this process's name where it is not named. `act`: what the audit trail says of the change.
        Returns WRITTEN, or why the permanent store does not have the change yet.
        """
        self.reconciler.begin()
        for _ in range(TRIES):
            copy = self.reconciler.committed(member_id)
            before = listed_in(copy, member_id)
            after = to(before)
            try:
                changes = difference(member_id, before, after)
                self.reconciler.commit(copy, changes, why=why, by=by, act=act(before, after))
            except (Changed, StaleFence):
                continue
            return self.reconciler.follow(member_id)
        raise Changed(f"somebody keeps changing {member_id}")

    def tokens(self) -> dict[str, str]:
        """The members that have a token, by its SHA-256."""
        entries: dict[str, Kept] = self.document.read().entries(KEPT)
        return {kept.get("token", ""): entry.removeprefix(KEPT) for entry, kept in entries.items()}

    def keep(
        self, member_id: str, to: Callable[[Kept], Kept], *, why: str, by: str | None = None, act: str = ""
    ) -> None:
        """Commit what `to` makes of what is kept of a member. Nothing is committed where that is the same."""
        self.reconciler.begin()
        for _ in range(TRIES):
            copy = self.document.current(KEPT + member_id)
            before = cast(Kept, copy.value(KEPT + member_id) or {})
            after = {name: part for name, part in to(before).items() if part}
            if after == before:
                return
            try:
                self.document.update(
                    {KEPT + member_id: after or None}, expect=copy, follow=False, who=by or "", why=why, act=act
                )
                return
            except (Changed, StaleFence):
                continue
        raise Changed(f"somebody keeps changing {member_id}")

    def would_import(self, path: Path) -> dict[str, list[str]]:
        """What `import_file` would change: a line for each difference, by member. Raises safe_xml.Unreadable."""
        new = {member.identifier: Listed(member=member) for member in read_nodelist(path).members}
        old: dict[str, Listed] = {}
        with suppress(NodelistStoreAway):  # there is no list yet
            old = self.listed()
        pairs = {name: (old.get(name), keeping(new.get(name), old.get(name))) for name in sorted({*new, *old})}
        return {name: lines for name, pair in pairs.items() if (lines := lines_of(name, *pair))}

    def import_file(self, path: Path, why: str = "") -> None:
        """Replace the list by that of a node-list document. Dates that the document does not name stay.

        Raises Changed with the members that somebody else kept changing; the others are replaced.
        """
        new = self.store.replacement(path)
        if new is None:  # the document has replaced the store itself
            with suppress(StoreUnavailable):  # the nodes refresh, now or when they start
                self.refresh()
            return
        self.reconciler.begin()
        names = {*new, *(entry.removeprefix(MEMBER) for entry in self.document.fetch().entries(MEMBER))}
        for _ in range(TRIES):
            copy = self.reconciler.committed(*names)
            olds = {name: listed_in(copy, name) for name in names}
            changes = {name: difference(name, old, keeping(new.get(name), old)) for name, old in olds.items()}
            names = self.reconciler.commit_all(copy, changes, why=f"import of {path.name}: {why}")
            if not names:
                break
        self.reconciler.follow_all()
        if names:
            raise Changed(
                f"somebody keeps changing {', '.join(sorted(names))}: import again; the others are in the list"
            )

    def refresh(self) -> list[str]:
        """See `Reconciler.refresh`."""
        return self.reconciler.refresh()
