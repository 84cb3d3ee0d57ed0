"""The nodelist of the tests: its document on the disks of two members, and its permanent store."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.documents.replica import Replica
from tasks.member_node.member import Member
from tasks.nodelist.ldap.directory import Directory
from tasks.nodelist.ldap.store import LdapStore
from tasks.nodelist.protocol import Dates
from tasks.nodelist.replicated import ReplicatedNodelist
from tasks.nodelist.stores import Listed, NodelistStore, OwnStore
from tasks.nodelist.xml_format import parse_nodelist, put_member, serialized
from tasks.nodelist.xml_store import XmlStore
from tests.harness.slapd import SlapdServer
from tests.harness.waiting import wait_until

NAME = "nodelist"
Outside = Callable[[str, Member | None], None]


class Lists:
    """`writer()`: a nodelist as another process has it, with a connection of its own."""

    def __init__(
        self, url: str, prefix: str, folder: Path, make: Callable[[], NodelistStore], outside: Outside
    ) -> None:
        self._settings = Settings(url=url, prefix=prefix, timeout=10)
        self._folder = folder
        self._make = make
        self._outside = outside
        self._stores: list[Store] = []
        self.replicas: list[Replica] = []
        self.nodelist = self.writer("one")

    @property
    def document(self) -> Document:
        return self.nodelist.document

    def writer(self, who: str, member: str = "one") -> ReplicatedNodelist:
        store = Store(self._settings)
        self._stores.append(store)
        document = Document(store, NAME, Copies(self._folder / member, NAME))
        return ReplicatedNodelist(document, OwnStore(self._make(), lambda identity, name: None), who)

    def keep(self, *members: str) -> None:
        for member in members:
            replica = Replica(self._stores[0], NAME, member, self._folder)
            replica.start()
            self.replicas.append(replica)
        wait_until(lambda: set(members) <= set(self.document.members()))

    def outside(self, member_id: str, **fields: Any) -> None:
        """Somebody changes a member in the store; without fields, removes it."""
        state = self._make().read_one(member_id)
        self._outside(member_id, state.listed.member.model_copy(update=fields) if state and fields else None)

    def outside_adds(self, member: Member) -> None:
        self._outside(member.identifier, member)

    def listed(self, member_id: str) -> Listed:
        return self.nodelist.listed()[member_id]

    def dates(self, member_id: str) -> Dates:
        member = self.listed(member_id).member
        return Dates(member.last_harvested, member.last_complete_harvest)

    def sync(self, until: datetime, fence: int, member_id: str, by: ReplicatedNodelist | None = None) -> str | None:
        """And then a node writes it to the store. What the sync was told; once it is written, what the store says."""
        return synced(by or self.nodelist, member_id, until, fence)

    def agree(self) -> None:
        """The store has what is committed, and nothing is said to be lacking."""
        listed = self.nodelist.listed()
        assert {member_id: state.listed for member_id, state in self._make().read().states.items()} == listed
        assert self.document.behind() == {}

    def __enter__(self) -> Self:
        self.keep("one", "two")
        self._stores[0]._client.delete(self._stores[0].key("grace", NAME))  # all who are to come are here
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica.stopping.set()
        self._stores[0]._client.publish(self._stores[0].key("replica", NAME), "")  # wakes them
        for replica in self.replicas:
            replica.stop()
        for store in self._stores:
            store.close()


def synced(
    nodelist: ReplicatedNodelist, member_id: str, until: datetime, fence: int, started_from: datetime | None = None
) -> str | None:
    told = nodelist.harvested(member_id, Dates(until, None), fence=fence, started_from=started_from)
    return told and nodelist.reconciler.write_back(member_id)


@contextmanager
def over(slapd: SlapdServer, url: str, prefix: str, folder: Path, **settings: Any) -> Iterator[Lists]:
    """With LDAP as the permanent store."""
    given = slapd.settings(**({"ldap_timeout": 2} | settings))

    def outside(member_id: str, member: Member | None) -> None:
        with Directory(slapd.settings()) as directory:
            record = directory.read_one(member_id)
            if member:
                directory.write(member_id, record, member, record.listed.approved if record else True)
            elif record:
                directory.remove(member_id, record)

    with Lists(url, prefix, folder / "copies", lambda: LdapStore(given), outside) as lists:
        yield lists


@contextmanager
def over_xml(path: Path, url: str, prefix: str, folder: Path) -> Iterator[Lists]:
    """With a node-list document as the permanent store."""

    def outside(member_id: str, member: Member | None) -> None:
        parsed = parse_nodelist(path.read_bytes())
        put_member(parsed, member_id, member)
        path.write_bytes(serialized(parsed.root))

    with Lists(url, prefix, folder / "copies", lambda: XmlStore(path), outside) as lists:
        yield lists


def change(to: Callable[[Member], dict[str, Any]]) -> Callable[[Listed | None], Listed | None]:
    """An operator's hand on one member's fields."""

    def changed(one: Listed | None) -> Listed:
        assert one is not None
        return one.model_copy(update={"member": one.member.model_copy(update=to(one.member))})

    return changed


def setting(**fields: Any) -> Callable[[Listed | None], Listed | None]:
    return change(lambda _: fields)


class Pause:
    """Stops a call of `owner.name` before it begins, in another thread, until it is let go; `after` so many calls."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str, after: int = 0) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        real, calls = getattr(owner, name), itertools.count()

        def held(*args: Any, **given: Any) -> Any:
            if next(calls) >= after and not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(60)
            return real(*args, **given)

        patch.setattr(owner, name, held)

    @contextmanager
    def holding(self, act: Callable[[], object]) -> Iterator[None]:
        """`act` has come as far as the pause; goes on and ends after the body."""

        def run() -> None:
            try:
                act()
            except BaseException as error:
                self.error = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert self.reached.wait(60), self.error
            yield
        finally:
            self.go.set()
            thread.join(60)
            assert not thread.is_alive()


class Turns:
    """Two threads whose steps are taken in turns as `order` says, "RSSR…"; one that has ended gives up its turns."""

    def __init__(self, patch: pytest.MonkeyPatch, order: str, steps: Mapping[str, Iterable[tuple[Any, str]]]) -> None:
        self._order = list(order)
        self._changed = threading.Condition()
        self._acting = ""
        for who, calls in steps.items():
            for owner, name in calls:
                patch.setattr(owner, name, self._in_turn(who, getattr(owner, name)))

    def run(self, **acts: Callable[[], object]) -> dict[str, Any]:
        """What each returned."""
        with ThreadPoolExecutor(len(acts)) as pool:
            told = {who: pool.submit(self._whole, who, act) for who, act in acts.items()}
            return {who: one.result(60) for who, one in told.items()}

    def _whole(self, who: str, act: Callable[[], object]) -> object:
        try:
            return act()
        finally:
            with self._changed:
                self._order = [one for one in self._order if one != who]
                self._acting = "" if self._acting == who else self._acting
                self._changed.notify_all()

    def _in_turn(self, who: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **given: Any) -> Any:
            with self._changed:
                self._acting = "" if self._acting == who else self._acting
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._acting == "" and self._order[:1] in ([], [who]), 30)
                self._acting, self._order = who, self._order[1:]
            return real(*args, **given)

        return called


def calls(nodelist: ReplicatedNodelist, document: str, source: str = "") -> list[tuple[Any, str]]:
    """Of its document and its source, to be patched."""
    return [
        (part, name)
        for part, names in ((nodelist.document, document), (nodelist.store, source))
        for name in names.split()
    ]


class Crash:
    """Ends whoever makes call number `after` of these, before it is made."""

    def __init__(self, patch: pytest.MonkeyPatch, after: int, calls: Iterable[tuple[Any, str]]) -> None:
        self._left = after
        for owner, name in calls:
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **given: Any) -> Any:
            if self._left == 0:
                raise InterruptedError
            self._left -= 1
            return real(*args, **given)

        return counted
