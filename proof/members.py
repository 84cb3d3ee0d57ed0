"""Members of a replica set of documents as processes that can be killed, at a step too, paused, and given a full disk.

Each is `python -m proof.members URL PREFIX NAME ROOT FATAL`. It ends with SIGTERM. FATAL is one of STEPS, at which it
kills itself once, or empty.
"""

import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from tasks.documents import on_disk
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.documents.replica import Replica
from tests.harness.stopping import stop
from tests.harness.warm import start
from tests.tasks.documents import replica_set
from tests.tasks.documents.replica_set import NAME, ReplicaSet

STEPS = ("before", "half", "written", "reported", "committed")


class Mortal(Replica):
    """Dies at `fatal`: before prepare, half written, written, reported, or committed and not noted."""

    fatal = ""

    def step(self) -> bool:
        acknowledging = self.fatal == "reported" and self._prepared.version > self._committed.version
        more = super().step()
        if acknowledging:
            die()
        return more

    def _prepare(self, version: int, sha: str, updates: bytes) -> None:
        if self.fatal == "before":
            die()
        super()._prepare(version, sha, updates)
        if self.fatal == "written":
            die()

    def _commit(self, version: int, sha: str, updates: bytes) -> None:
        if self.fatal == "committed":
            die()
        super()._commit(version, sha, updates)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _half(file: BinaryIO, line: bytes) -> None:
    file.write(line[: len(line) // 2])
    file.flush()
    die()


def main() -> None:
    url, prefix, name, root, Mortal.fatal = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if Mortal.fatal == "half":
        on_disk.write = _half
    replica = Mortal(Store(Settings.model_validate({"url": url, "prefix": prefix})), NAME, name, Path(root))
    signal.signal(signal.SIGTERM, lambda *_: replica.stopping.set())
    replica.run()


class Member(replica_set.Member):
    """One process; `document` reads as other processes of its node do."""

    def __init__(self, store: Store, name: str, root: Path, fatal: str) -> None:
        self.name = name
        self.log = root / f"{name}.log"
        self._argv = ["-m", "proof.members", store.settings.url, store.settings.prefix, name, str(root)]
        self.copies = Copies(root / name, NAME)
        self.document = Document(store, NAME, self.copies)
        self.start(fatal)

    def start(self, fatal: str = "") -> None:
        with self.log.open("ab") as log:
            self.process = start([*self._argv, fatal], stdout=log, stderr=log)

    def living(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it as its node would, and wait for it."""
        self.process.terminate()
        self.process.wait(60)

    def pause(self) -> None:
        stop(self.process)

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)

    def fill(self, full: bool = True) -> None:
        """Limit its files to ten bytes, or lift that limit."""
        with suppress(ProcessLookupError):
            soft = 10 if full else resource.RLIM_INFINITY
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))


class Members(ReplicaSet[Member]):
    """Each a process."""

    def member(self, name: str, fatal: str = "", **_: str) -> Member:
        return Member(self.store, name, self.root, fatal)


if __name__ == "__main__":
    main()
