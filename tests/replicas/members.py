"""A replica set of processes that can be killed, paused, and given a full disk."""

import json
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from coordinator.copies import Copies, Copy
from coordinator.errors import StoreUnavailable
from coordinator.replicas import Document
from coordinator.settings import Settings
from coordinator.store import Store
from tests.replicas.member import Charge
from tests.waiting import wait_until

NAME = "list"


class Killable:
    """A process of a trial."""

    process: subprocess.Popen[Any]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def paused(self) -> bool:
        """Does it stand still?"""
        with suppress(OSError):
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)

    def living(self) -> bool:
        return self.process.poll() is None


class Member(Killable):
    """One process; `document` reads as other processes of its node do."""

    def __init__(self, store: Store, charge: Charge, log: Path) -> None:
        self.name = charge.name
        self.log = log
        self._charge = charge
        self.copies = Copies(Path(charge.root) / charge.name, charge.document)
        self.document = Document(store, charge.document, self.copies)
        self.start(charge.fatal)

    def start(self, fatal: str = "") -> None:
        charge = json.dumps(asdict(self._charge) | {"fatal": fatal})
        with self.log.open("ab") as log:
            argv = [sys.executable, "-m", "tests.replicas.member", charge]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def end(self) -> None:
        """As its node would; waits for it."""
        self.process.terminate()
        self.process.wait(10)

    def fill(self, full: bool = True) -> None:
        """Its disk takes no more than ten bytes a file, or what comes."""
        with suppress(ProcessLookupError):
            soft = 10 if full else resource.RLIM_INFINITY
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    def disk(self) -> Copy | None:
        """The version that it knows as committed, as it lies there."""
        version, sha = self.copies.committed()
        return self.copies.read(version, sha) if version else None


class Members:
    """Started by name; `document` is that of a plain client, as authors have it."""

    def __init__(self, url: str, prefix: str, root: Path, fault: tuple[str, str, str] | None = None) -> None:
        self.store = Store(Settings(url=url, prefix=prefix))
        self.document = Document(self.store, NAME)
        self.root = root
        self.all: list[Member] = []
        self._fault = fault

    def start(self, *names: str, fatal: str = "") -> list[Member]:
        self.root.mkdir(parents=True, exist_ok=True)
        url, prefix = self.store.settings.url, self.store.settings.prefix
        started = []
        for name in names:
            charge = Charge(url, prefix, NAME, name, str(self.root), fatal, self._fault)
            started.append(Member(self.store, charge, self.root / f"{name}.log"))
        self.all += started
        return started

    def ready(self, *names: str) -> list[Member]:
        """As `start`, once they are in the replica set; the first versions may begin at once."""
        started = self.start(*names)
        self.expect(*(member.name for member in self.all))
        self.store.client.delete(self.store.key("grace", NAME))
        return started

    def expect(self, *names: str, timeout: float = 10) -> None:
        """Wait until these are the replica set."""
        wait_until(lambda: self.set() == sorted(names), timeout, lambda: f"in the set: {self.set()}")

    def set(self) -> list[str]:
        try:
            return self.document.members()
        except StoreUnavailable:
            return []

    def put(self, entry: str, value: object, update_id: str = "", timeout: float = 10.0) -> int:
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

    def agree(self, timeout: float = 10) -> Copy:
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
