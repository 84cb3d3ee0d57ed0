"""Background threads: one with a stop flag, and one that sends queued items in batches; and what each does after a
round of work in which it calls code of others.
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
    """A round of a thread of ours that calls code of others: a result backend, a handler, a view.

    Such code may use Django's database, which keeps a connection for each thread, and never finds out by itself that
    the server has closed it. So they are closed after the round, as Celery's worker closes them after each task. Not in
    a transaction, which is of a user's own thread, as in a test.
    """
    try:
        yield
    finally:
        _close_connections()


@asynccontextmanager
async def connections_of_a_loop_closed() -> AsyncIterator[None]:
    """The same for code of others in a loop: its connections are those of the thread in which Django does its calls."""
    try:
        yield
    finally:
        if there := sys.modules.get("asgiref.sync"):
            await there.sync_to_async(_close_connections)()


def _close_connections() -> None:
    """Nothing where nobody has loaded Django."""
    conf, db = sys.modules.get("django.conf"), sys.modules.get("django.db")
    if conf is None or db is None or not conf.settings.configured:
        return
    try:
        for connection in db.connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()
    except Exception as error:  # of a driver; Django has forgotten that connection all the same
        logger.warning("cannot close a database connection: %s", error)


class StoppableThread(ABC):
    """A daemon thread that calls `run` once; `run` must return soon after `stopping` is set.

    `patience`: how many seconds `stop` waits for `run` to return.
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
    """Sends queued items in batches from a daemon thread, so that callers never wait for the receiver.

    The thread sends the first item at once, and then everything in the queue each `pause` seconds, or when `hurry` is
    called. The queue holds `most` items; when it is full, the oldest are dropped. The thread starts with the first
    item, and again in a forked process, which sends its own items only.
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
        """Start the thread once in this process, also where two callers put their first items at the same time."""
        with self._starting:
            if self._pid != os.getpid():
                self._queue.clear()
                self._pending.clear()
                self._pid = os.getpid()
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def hurry(self) -> None:
        """Have what is queued sent without a pause: for now, no more comes."""
        self._hurry.set()

    def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until the queue is empty, and return whether it is: before a process ends."""
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
                logger.exception("%s: %d were not sent", self._name, len(items))
            if not self._queue:
                self._idle.set()
            self._hurry.wait(self._pause)

    @abstractmethod
    def send(self, items: list[T]) -> None:
        """Send these items; `put` again any that should be retried."""
