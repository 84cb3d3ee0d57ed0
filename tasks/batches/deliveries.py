"""Stores each delivery that arrives in a directory exactly once.

A delivery is a directory `<batch>-RT<n>`. It is complete once it holds the file `transfer_acknowledged`, which its
sender writes last. That file's inode, size and time of change identify the delivery: when a batch is sent again, the
new file has others.

The store adds each delivery in one transaction. So any number of processes may watch the directory, and each delivery
is stored once, even if one of these processes dies. coordinator/sorters/directory.py scans the directory.
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
    """Watches a directory and stores the deliveries in it. `type`: the type of the items that new deliveries add.

    Raises InvalidJob if the directory cannot be read.
    """

    def __init__(self, items: Items, directory: Path, type: str = "batch") -> None:
        self._items, self._type = items, type
        self._seen: dict[bytes, str] = {}
        self._watch = DirectoryWatch(directory, PATTERN, self._take, lambda: dict(self._seen), self._forget, MARKER)

    def watch(self, poll: float, stop: threading.Event) -> None:
        self._watch.run(poll, stop)

    def step(self) -> None:
        """Scan the directory, and store each delivery whose `transfer_acknowledged` is as at the previous scan."""
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
