"""The replicated nodelist: a document with a copy on each node and beat, which is written back to a permanent store.

A process reads the document. It reads the permanent store (XML or LDAP) only before the first refresh, and, in a client
that has no copy, while Redis is away. The first refresh of an empty store commits that the list is empty; from then on
processes read the document.
"""

import socket
from collections.abc import Callable, Iterable
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
from tasks.member_node.subjects import of_another
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
    """Reads and changes the nodelist. `who`: the author of this process's changes; empty: the name of this host."""

    def __init__(self, document: Document, store: NodelistStore, who: str = "") -> None:
        self.document = document
        self.store = store
        self.reconciler = Reconciler(document, store, who or socket.gethostname())
        self._view = View()

    def listed(self) -> dict[str, Listed]:
        """All members in the nodelist by id, also those that are not approved."""
        return self._current()[0]

    def members(self) -> list[Member]:
        return [listed.member for listed in self.listed().values() if listed.approved]

    def member(self, member_id: str) -> Member | None:
        """An approved member, as committed; None: the member is not in the nodelist, or is not approved."""
        listed = self._committed(member_id) or self.listed().get(member_id)
        return listed.member if listed and listed.approved else None

    def _committed(self, member_id: str) -> Listed | None:
        """Read one member from Redis, without the rest of the list. None: the caller must read the whole list.

        That is so if the member is not committed, if Redis does not answer, or if Redis has lost its latest writes.
        """
        copies = self.document.copies
        try:
            if self.document.pointer()[0] < (copies.committed().version if copies else 1):
                return None  # Redis has lost its latest writes, or no version is committed yet
            return listed_in(self.reconciler.committed(member_id), member_id)
        except StoreUnavailable:
            return None

    def version(self) -> str:
        """A checksum of the nodelist without the harvest dates; empty: the list comes from the permanent store."""
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
        """Commit new harvest dates of a member, never earlier ones: `Nodelist.harvested` in protocol.py says more."""
        self.reconciler.ensure_refreshed()
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
                return self._reason(member_id) if self.document.behind(MEMBER + member_id, entry) else WRITTEN
            try:
                self.reconciler.commit(copy, {entry: dates_value(new)}, fence=fence, why="synchronized")
                return self._reason(member_id)
            except (Changed, StaleFence):
                continue
        raise Changed(f"the dates of {member_id} keep changing")

    def _reason(self, member_id: str) -> str:
        """Why the permanent store lacks the member's newest version."""
        return str((self.document.stored_of(member_id) or {}).get("why") or SOON)

    def reset(self, member_id: str, why: str = "reset", by: str | None = None, act: ActOf = no_act) -> str:
        """Set a member's harvest dates back, so that the next sync fetches all its objects.

        Returns as `change` does. Raises KeyError for an unknown member.
        """

        def never(listed: Listed | None) -> Listed:
            if listed is None:
                raise KeyError(member_id)
            return listed.model_copy(update={"member": Dates.of(listed.member).begun_anew().put_on(listed.member)})

        return self.change(member_id, never, why=why, by=by, act=act)

    def purged(self, member_id: str, *, fence: int, why: str, by: str, act: str = "") -> None:
        """Commit a note to the nodelist's history: the catalog's objects of a former member are deleted.

        Raises ValueError for a member that is in the list.
        """
        self.reconciler.ensure_refreshed()
        copy = self.reconciler.committed(member_id)
        if (listed := listed_in(copy, member_id)) is not None:
            raise ValueError(f"{member_id} is in the list, at {listed.member.base_url}: remove it first")
        self.reconciler.commit(copy, {MEMBER + member_id: None}, fence=fence, write_back=False, why=why, by=by, act=act)

    def change(
        self, member_id: str, to: Callable[[Listed | None], Listed | None], *, why: str, by: str | None = None,
        act: ActOf = no_act,
    ) -> str:  # fmt: skip
        """Replace a member by `to(member)`: commit that, and write it to the permanent store. None: not in the list.

        `by`: the author; None: the name of this process. `act`: makes the entry of the audit trail, from the member
        before and after. Returns WRITTEN, or why the permanent store does not have the change yet.
        """
        self.reconciler.ensure_refreshed()
        for _ in range(TRIES):
            copy = self.reconciler.committed(member_id)
            before = listed_in(copy, member_id)
            after = to(before)
            try:
                changes = difference(member_id, before, after)
                self.reconciler.commit(copy, changes, why=why, by=by, act=act(before, after))
            except (Changed, StaleFence):
                continue
            return self.reconciler.write_back(member_id)
        raise Changed(f"{member_id} keeps changing")

    def tokens(self) -> dict[str, str]:
        """The ids of the members, by the SHA-256 of their token; under the empty text, a member without a token."""
        entries: dict[str, Kept] = self.document.read().entries(KEPT)
        return {kept.get("token", ""): entry.removeprefix(KEPT) for entry, kept in entries.items()}

    def another(self, member_id: str, subjects: Iterable[str]) -> str:
        """A sentence that another member has one of these certificate subjects; empty: no other member has any."""
        others = {name: listed.member.subjects for name, listed in self.listed().items() if name != member_id}
        if (shared := of_another(subjects, others)) is None:
            return ""
        return f"{shared[1]} has the subject {shared[0]}; a subject of two members would admit neither"

    def keep(
        self, member_id: str, to: Callable[[Kept], Kept], *, why: str, by: str | None = None, act: str = ""
    ) -> None:
        """Replace the entry `kept/<id>` of a member by `to(entry)`. Commits nothing if the entry stays the same.

        `by`: the author; None or empty: no author. `act`: an entry for the audit trail; empty: none.
        """
        self.reconciler.ensure_refreshed()
        for _ in range(TRIES):
            copy = self.document.current(KEPT + member_id)
            before = cast(Kept, copy.value(KEPT + member_id) or {})
            after = {name: part for name, part in to(before).items() if part}
            if after == before:
                return
            try:
                self.document.update(
                    {KEPT + member_id: after or None}, expect=copy, write_back=False, who=by or "", why=why, act=act
                )
                return
            except (Changed, StaleFence):
                continue
        raise Changed(f"{member_id} keeps changing")

    def would_import(self, path: Path) -> dict[str, list[str]]:
        """The changes that `import_file` would make, as sentences by member. Raises safe_xml.Unreadable."""
        new = {member.identifier: Listed(member=member) for member in read_nodelist(path).members}
        old: dict[str, Listed] = {}
        with suppress(NodelistStoreAway):  # there is no nodelist yet
            old = self.listed()
        pairs = {name: (old.get(name), keeping(new.get(name), old.get(name))) for name in sorted({*new, *old})}
        return {name: lines for name, pair in pairs.items() if (lines := lines_of(name, *pair))}

    def import_file(self, path: Path, why: str = "") -> None:
        """Replace the nodelist by the members in a node-list document. Harvest dates stay if the document has none.

        Raises Changed, which names the members that others kept changing meanwhile; the other members are replaced.
        """
        new = self.store.replacement(path)
        if new is None:  # the file of the permanent store has been replaced
            with suppress(StoreUnavailable):  # the nodes will refresh, at their next refresh or when they start
                self.refresh()
            return
        self.reconciler.ensure_refreshed()
        names = {*new, *(entry.removeprefix(MEMBER) for entry in self.document.fetch().entries(MEMBER))}
        for _ in range(TRIES):
            copy = self.reconciler.committed(*names)
            olds = {name: listed_in(copy, name) for name in names}
            changes = {name: difference(name, old, keeping(new.get(name), old)) for name, old in olds.items()}
            names = self.reconciler.commit_all(copy, changes, why=f"import of {path.name}: {why}")
            if not names:
                break
        self.reconciler.write_back_pending()
        if names:
            raise Changed(
                f"these members keep changing: {', '.join(sorted(names))}. Import again; the others are in the list"
            )

    def refresh(self) -> list[str]:
        """Commit what others changed in the permanent store, and write what it lacks: see `Reconciler.refresh`."""
        return self.reconciler.refresh()
