"""A thread that runs until somebody stops it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class StoppableThread(ABC):
    """A daemon thread that calls `run` once. `run` returns soon after `stopping` is set.

    `patience`: how many seconds `stop` waits for that.
    """

    def __init__(self, name: str, patience: float) -> None:
        self.stopping = threading.Event()
        self._patience = patience
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(self._patience)

    @abstractmethod
    def run(self) -> None: ...
