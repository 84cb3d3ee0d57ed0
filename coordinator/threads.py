"""Threads that run beside others: one that somebody stops, and one that sends what others put."""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


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


class SendingThread(ABC, Generic[T]):
    """A daemon thread that sends what others put, so that nobody else waits for whom it is sent to.

    It sends a lone item at once, and from then on all that waits each `pause` seconds. Beyond `most` items the oldest
    are dropped. It begins with the first item, and anew in a process that was forked meanwhile.
    """

    def __init__(self, name: str, pause: float, most: int) -> None:
        self._name, self._pause = name, pause
        self._waiting: deque[T] = deque(maxlen=most)
        self._there, self._sent = threading.Event(), threading.Event()
        self._sent.set()
        self._pid = 0
        self._starting = threading.Lock()

    def put(self, item: T) -> None:
        self._waiting.append(item)
        self._sent.clear()
        if self._pid != os.getpid():
            self._start()
        self._there.set()

    def _start(self) -> None:
        """Two threads may put their first items at once."""
        with self._starting:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def flush(self, seconds: float) -> bool:
        """Wait for so long until all is sent; whether it is. For a process that ends."""
        return self._sent.wait(seconds)

    def _run(self) -> None:
        while self._there.wait():
            self._there.clear()
            items = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                self.send(items)
            except Exception:
                logger.exception("%s: %d were not sent", self._name, len(items))
            if not self._waiting:
                self._sent.set()
            time.sleep(self._pause)

    @abstractmethod
    def send(self, items: list[T]) -> None:
        """Send these, and put again those that are to be tried again."""
