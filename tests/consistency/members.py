"""A replica set of processes that can be killed, paused, and given a full disk."""

import json
import resource
import signal
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from coordinator.store.client import Store
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tests.consistency.member import Charge
from tests.harness.warm import Started, start
from tests.tasks.documents import replica_set
from tests.tasks.documents.replica_set import NAME, ReplicaSet


class Killable:
    """A process of a trial."""

    process: Started

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


class Member(Killable, replica_set.Member):
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
            self.process = start(["-m", "tests.consistency.member", charge], stdout=log, stderr=log)

    def end(self) -> None:
        """As its node would; waits for it."""
        self.process.terminate()
        self.process.wait(10)

    def fill(self, full: bool = True) -> None:
        """Its disk takes no more than ten bytes a file, or what comes."""
        with suppress(ProcessLookupError):
            soft = 10 if full else resource.RLIM_INFINITY
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))


class Members(ReplicaSet[Member]):
    """Each a process; `fault` is that of every one."""

    def __init__(self, url: str, prefix: str, root: Path, fault: tuple[str, str, str] | None = None) -> None:
        super().__init__(url, prefix, root)
        self._fault = fault

    def member(self, name: str, fatal: str = "", **_: str) -> Member:
        settings = self.store.settings
        charge = Charge(settings.url, settings.prefix, NAME, name, str(self.root), fatal, self._fault)
        return Member(self.store, charge, self.root / f"{name}.log")
