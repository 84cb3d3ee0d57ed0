"""Deliveries that arrive in a directory, once each.

A delivery is a directory `<batch>-RT<n>`. It is complete once it holds the file `transfer_acknowledged`, which its
sender writes last. The identity of that file is the delivery's: a batch that is sent again has another one.

The store notes each delivery in one transaction. So any number of watchers may run, and each delivery is stored once,
also where a watcher dies. coordinator.sorters.directory scans the directory, as it does for a sorter's files.
"""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from coordinator.extending import DirectoryWatch, File
from tasks.batches.items import Items
from tasks.batches.round_trips import deliver

MARKER = "transfer_acknowledged"
PATTERN = "*-RT*"

logger = logging.getLogger(__name__)


class Deliveries:
    """Stores the deliveries in a directory. Raises InvalidJob for a directory that cannot be read."""

    def __init__(self, items: Items, directory: Path, type: str = "batch") -> None:
        self._items, self._type = items, type
        self._seen: dict[bytes, str] = {}
        self._watch = DirectoryWatch(directory, PATTERN, self._take, lambda: dict(self._seen), self._forget, MARKER)

    def watch(self, poll: float, stop: threading.Event) -> None:
        self._watch.run(poll, stop)

    def step(self) -> None:
        """Scan the directory once. A delivery is stored at the second scan that finds its marker unchanged."""
        self._watch.step()

    def _take(self, _: str, file: File) -> str:
        name = file.path.name
        outcome = deliver(self._items, name, directory=str(file.path), identity=file.identity, type=self._type)
        if outcome != "known":
            logger.info("delivery %s: %s", name, outcome)
        self._seen[bytes(file.path)] = file.identity
        return "seen"

    def _forget(self, files: Mapping[bytes, str]) -> None:
        for path in files:
            self._seen.pop(path, None)
