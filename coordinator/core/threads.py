"""Base classes of background threads: one with a stop flag, and one that sends queued items in batches.

A background thread that calls a result backend or an app's handler closes Django's database connections afterwards.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


@contextmanager
def connections_closed() -> Iterator[None]:
    """Close this thread's database connections of Django at the end of the block, which calls an app's code.

    Django keeps a connection for each thread, and does not notice that the server has closed it. Celery's worker closes
    them after each task; the background threads of this library run no tasks. A connection in a transaction stays
    open: then the block runs in a thread of the app, for example in a test.
    """
    try:
        yield
    finally:
        _close_connections()


@asynccontextmanager
async def connections_of_a_loop_closed() -> AsyncIterator[None]:
    """Close Django's database connections at the end of the block, in an event loop: Django's connections then belong
    to the thread in which asgiref runs Django's synchronous code.
    """
    try:
        yield
    finally:
        if asgiref_sync := sys.modules.get("asgiref.sync"):
            await asgiref_sync.sync_to_async(_close_connections)()


def _close_connections() -> None:
    """Close the calling thread's database connections of Django, except those in a transaction; nothing if Django is
    not loaded.
    """
    conf, db = sys.modules.get("django.conf"), sys.modules.get("django.db")
    if conf is None or db is None or not conf.settings.configured:
        return
    try:
        for connection in db.connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()
    except Exception as error:  # raised by the database driver; Django forgets that connection all the same
        logger.warning("cannot close a database connection of Django: %s", error)


class StoppableThread(ABC):
    """A daemon thread that calls `run` once. `run` must return soon after the event `stopping` is set.

    `patience`: the number of seconds for which `stop` waits for `run` to return.
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
    """Sends queued items in batches from a daemon thread, so that a caller of `put` never waits until they are sent.

    The thread sends the first item at once, and then all queued items every `pause` seconds, or when `hurry` is called.
    The queue holds `most` items; when it is full, the oldest are dropped. The first `put` starts the thread; in a
    forked process, the first `put` there starts another one, which sends only items of that process.
    """

    def __init__(self, name: str, pause: float, most: int) -> None:
        self._name, self._pause = name, pause
        self._queue: deque[T] = deque(maxlen=most)
        self._pending, self._hurry, self._idle = threading.Event(), threading.Event(), threading.Event()
        self._idle.set()
        self._pid = 0
        self._starting = threading.Lock()

    def put(self, item: T) -> None:
        if self._pid != os.getpid():
            self._start()
        self._queue.append(item)
        self._idle.clear()
        self._pending.set()

    def _start(self) -> None:
        """Start the thread in this process, only once even if two threads call `put` for the first time together."""
        with self._starting:
            if self._pid != os.getpid():
                self._queue.clear()
                self._pending.clear()
                self._pid = os.getpid()
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def hurry(self) -> None:
        """Make the thread send the queued items now, without waiting until `pause` is over."""
        self._hurry.set()

    def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until all queued items were sent; True if they were. To be called before the process
        ends.
        """
        return self._idle.wait(seconds)

    def _run(self) -> None:
        while self._pending.wait():
            self._pending.clear()
            self._hurry.clear()
            items = [self._queue.popleft() for _ in range(len(self._queue))]
            try:
                with connections_closed():
                    self.send(items)
            except Exception:
                logger.exception("%s: %d items were not sent", self._name, len(items))
            if not self._queue:
                self._idle.set()
            self._hurry.wait(self._pause)

    @abstractmethod
    def send(self, items: list[T]) -> None:
        """Send the items, in the thread. An implementation calls `put` for each item that is to be sent again. After an
        exception, the items are dropped.
        """
