"""A member as a process of its own: `python -m tests.consistency.member JSON`, see `Charge`. It ends with SIGTERM."""

import json
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from coordinator.settings import Settings
from coordinator.store.client import Store
from tasks.documents import library, on_disk
from tasks.documents.replica import Replica


@dataclass
class Charge:
    """`fatal`: the step before or in which it kills itself, once; `fault`: [file, old, new] in the library's text."""

    url: str
    prefix: str
    document: str
    name: str
    root: str
    fatal: str = ""
    fault: tuple[str, str, str] | None = None


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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


def misread(fault: tuple[str, str, str]) -> None:
    """From here on the library of this process has that fault."""
    file, old, new = fault

    def text_of(name: str) -> str:
        text = whole(name)
        return text.replace(old, new) if name == file else text

    whole, library.text_of = library.text_of, text_of


def main() -> None:
    charge = Charge(**json.loads(sys.argv[1]))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if charge.fault:
        misread(charge.fault)
    if charge.fatal == "half":
        on_disk.write = _half
    Mortal.fatal = charge.fatal
    settings = Settings(url=charge.url, prefix=charge.prefix)
    replica = Mortal(Store(settings), charge.document, charge.name, Path(charge.root))
    signal.signal(signal.SIGTERM, lambda *_: replica.stopping.set())
    replica.run()


def _half(file: BinaryIO, line: bytes) -> None:
    file.write(line[: len(line) // 2])
    file.flush()
    die()


if __name__ == "__main__":
    main()
