"""Replica sets: what they have in common, and one whose members are threads of this process."""

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Generic, Self, TypeVar

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.errors import StoreUnavailable
from tasks.documents.copy import Copy
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.documents.replica import Replica
from tests.harness.waiting import wait_until

NAME = "list"


class Member(ABC):
    """One that keeps copies; `document` reads as other processes of its node do."""

    name: str
    copies: Copies
    document: Document

    @abstractmethod
    def living(self) -> bool: ...

    @abstractmethod
    def kill(self) -> None: ...

    def disk(self) -> Copy | None:
        """The version that it knows as committed, as it lies there."""
        return self.copies.read(self.copies.committed().version)


class Resident(Member):
    """A thread of this process."""

    def __init__(self, store: Store, name: str, root: Path) -> None:
        self.name = name
        self.copies = Copies(root / name, NAME)
        self.document = Document(store, NAME, self.copies)
        self._replica = Replica(store, NAME, name, root)
        self._replica.start()

    def living(self) -> bool:
        return self._replica._thread.is_alive()

    def kill(self) -> None:
        """A thread cannot be killed: it ends as its node would, and leaves the replica set."""
        self._replica.stop()


M = TypeVar("M", bound=Member)


class ReplicaSet(ABC, Generic[M]):
    """Members started by name; `document` is that of a plain client, as authors have it."""

    def __init__(self, url: str, prefix: str, root: Path) -> None:
        self.store = Store(Settings(url=url, prefix=prefix))
        self.document = Document(self.store, NAME)
        self.root = root
        self.all: list[M] = []

    @abstractmethod
    def member(self, name: str, **how: str) -> M:
        """Start it."""

    def start(self, *names: str, **how: str) -> list[M]:
        self.root.mkdir(parents=True, exist_ok=True)
        started = [self.member(name, **how) for name in names]
        self.all += started
        return started

    def ready(self, *names: str) -> list[M]:
        """As `start`, once they are in the replica set; the first versions may begin at once."""
        started = self.start(*names)
        self.expect(*(member.name for member in self.all))
        self.store._client.delete(self.store.key("grace", NAME))
        return started

    def expect(self, *names: str, timeout: float = 60) -> None:
        """Wait until these are the replica set."""
        wait_until(lambda: self.set() == sorted(names), timeout, lambda: f"in the set: {self.set()}")

    def set(self) -> list[str]:
        try:
            return self.document.members()
        except StoreUnavailable:
            return []

    def put(self, entry: str, value: object, update_id: str = "", timeout: float = 30.0) -> int:
        """An update under a new fence; asked again while Redis is away."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                fence = self.document.fence()
                return self.document.update({entry: value}, fence=fence, update_id=update_id, timeout=timeout)
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def agree(self, timeout: float = 60) -> Copy:
        """Wait until every living member has the newest version on its disk, the same byte by byte; that version."""

        def alike() -> bool:
            with suppress(StoreUnavailable):
                version, sha = self.document.pointer()
                disks = [member.disk() for member in self.all if member.living()]
                return all(disk and (disk.version, disk.sha) == (version, sha) for disk in disks)
            return False

        wait_until(alike, timeout, lambda: f"{self.document.pointer()}: {[m.disk() for m in self.all]}")
        return self.document.fetch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.all:
            member.kill()
        self.store.close()


class Residents(ReplicaSet[Resident]):
    def member(self, name: str, **how: str) -> Resident:
        return Resident(self.store, name, self.root)
