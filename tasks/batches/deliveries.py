"""Deliveries that arrive in a directory, once each.

A delivery is a directory `<batch>-RT<n>`. It is complete once it holds the file `transfer_acknowledged`, which its
sender writes last. The identity of that file is the delivery's: a batch that is sent again has another one.

The store knows which deliveries it has taken in. So any number of watchers take in each one once, and one that dies
has either taken it in or not. coordinator.lanes.directory does the looking, as it does for a sorter's files.
"""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from coordinator.lanes.directory import File, Watch
from tasks.batches.items import Items
from tasks.batches.round_trips import deliver

MARKER = "transfer_acknowledged"
PATTERN = "*-RT*"

logger = logging.getLogger(__name__)


class Deliveries:
    """Raises InvalidJob for a directory that cannot be read."""

    def __init__(self, items: Items, directory: Path, type: str = "batch") -> None:
        self._items, self._type = items, type
        self._seen: dict[bytes, str] = {}
        self._watch = Watch(directory, PATTERN, self._take, lambda: dict(self._seen), self._forget, MARKER)

    def watch(self, poll: float, stop: threading.Event) -> None:
        self._watch.run(poll, stop)

    def step(self) -> None:
        """One look. A delivery is taken in at the second look that finds its marker unchanged."""
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
