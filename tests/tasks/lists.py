"""The nodelist of the tests: its document on the disks of two members, and a permanent store that it follows."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest

from coordinator.copies import Copies
from coordinator.replica import Replica
from coordinator.replicas import Document
from coordinator.settings import Settings
from coordinator.store import Store
from tasks.catalog import Dates
from tasks.ldapsource import LdapSource
from tasks.member import Member
from tasks.notes import DATED, MEMBER
from tasks.replicated import ReplicatedNodelist
from tasks.sources import Listed, Source
from tests.directory import SlapdServer
from tests.waiting import wait_until

NAME = "nodelist"


class Lists:
    """`writer()`: a nodelist as another process has it, with a connection of its own."""

    def __init__(self, url: str, prefix: str, folder: Path, make: Callable[[], Source]) -> None:
        self._settings = Settings(url=url, prefix=prefix, timeout=10)
        self._folder = folder
        self._make = make
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
        return ReplicatedNodelist(document, self._make(), who)

    def keep(self, *members: str) -> None:
        for member in members:
            replica = Replica(self._stores[0], NAME, member, self._folder)
            replica.start()
            self.replicas.append(replica)
        wait_until(lambda: set(members) <= set(self.document.members()))

    def listed(self, node_id: str) -> Listed:
        return self.nodelist.listed()[node_id]

    def dates(self, node_id: str) -> Dates:
        member = self.listed(node_id).member
        return Dates(member.last_harvested, member.last_complete_harvest)

    def sync(self, until: datetime, fence: int, node_id: str, by: ReplicatedNodelist | None = None) -> bool:
        return (by or self.nodelist).harvested(node_id, Dates(until, None), fence=fence)

    def agree(self) -> None:
        """The store has what is committed, and nothing is said to be lacking."""
        listed = self.nodelist.listed()
        assert {node_id: state.listed for node_id, state in self._make().read().states.items()} == listed
        assert self.document.behind() == {}

    def __enter__(self) -> Self:
        self.keep("one", "two")
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica._stop.set()
        for replica in self.replicas:
            replica.stop()
        for store in self._stores:
            store.close()


@contextmanager
def over(slapd: SlapdServer, url: str, prefix: str, folder: Path, **settings: Any) -> Iterator[Lists]:
    """With LDAP as the permanent store."""
    given = slapd.settings(**({"ldap_timeout": 2} | settings))
    with Lists(url, prefix, folder / "copies", lambda: LdapSource(given)) as lists:
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
    """Stops a call of `owner.name` before it begins, in another thread, until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        real = getattr(owner, name)

        def held(*args: Any, **given: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(30)
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
            assert self.reached.wait(20), self.error
            yield
        finally:
            self.go.set()
            thread.join(30)
            assert not thread.is_alive()


def entries_of(node_id: str) -> set[str]:
    return {MEMBER + node_id, DATED + node_id}
