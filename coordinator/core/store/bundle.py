"""Runs readings side by side, so that what they ask of Redis at the same time takes one round trip.

Each reading runs in a thread of its own. Once all of them wait for Redis, the thread that runs the bundle sends what
they asked in one packet, and hands each its replies. So several readings take as many round trips as the longest of
them, not as their sum. A reading may run a bundle of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TypeVar

import redis

from coordinator.core.store.client import Store
from coordinator.core.store.connections import Connections
from coordinator.core.store.wire import Arg
from coordinator.core.threads import connections_closed

T = TypeVar("T")


class Bundle:
    """Readings that `run` runs side by side. They ask through the bundle's `store`, and nothing else of Redis.

    Where the connections belong to an event loop (coordinator.aio), they run one after the other.
    """

    def __init__(self, store: Store) -> None:
        self._shared = _Shared(store.connections) if store.connections.threaded else None
        self.store = Store(store.settings, self._shared, store.library) if self._shared else store
        self._readings: list[Callable[[], None]] = []

    def add(self, read: Callable[[Store], T]) -> Future[T]:
        """Add a reading, which gets the bundle's store. Returns the Future of its result, which `run` sets."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(read(self.store))
            except BaseException as error:
                future.set_exception(error)
                raise

        self._readings.append(run)
        return future

    @property
    def shortest(self) -> float | None:
        """The seconds of the shortest round trip so far; None: there was none, or nobody measures them."""
        return self.store.connections.shortest

    def run(self) -> None:
        """Run the readings to their ends. Raises the first exception among theirs; then the others stop at their next
        request.
        """
        readings, self._readings = self._readings, []
        if self._shared is not None:
            self._shared.run(readings)
            return
        for read in readings:
            read()


def side_by_side(store: Store, readings: Iterable[Callable[[Store], Iterable[T]]]) -> list[T]:
    """Run readings side by side, and return the things of the first one, then those of the next one, and so on."""
    bundle = Bundle(store)
    found = [bundle.add(lambda own, read=read: [*read(own)]) for read in readings]  # type: ignore[misc]
    bundle.run()
    return [one for future in found for one in future.result()]


def beside(function: Callable[[], T]) -> Future[T]:
    """Begin to call a function that asks others than a bundle, in a thread of its own, and return the Future of its
    result. Who gives up waiting for it leaves the thread to its end.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            with connections_closed():
                future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    _start(run)
    return future


def _start(run: Callable[[], None]) -> None:
    threading.Thread(target=copy_context().run, args=(run,), name="coordinator-reads", daemon=True).start()


class _Request:
    """Commands of one reading, and then their replies, or the error that no reply came."""

    def __init__(self, commands: list[Sequence[Arg]]) -> None:
        self.commands = commands
        self.replies: list[object] = []
        self.error: BaseException | None = None
        self.answered = threading.Event()


class _Shared(Connections):
    """The connections of the readings of one bundle: they collect requests, which `run` sends through `whole`."""

    def __init__(self, whole: Connections) -> None:  # without that of Connections: it opens none of its own
        self._whole, self.server, self.login = whole, whole.server, whole.login
        self._changed = threading.Condition()
        self._waiting: list[_Request] = []
        self._working = 0
        self._error: BaseException | None = None

    def run(self, readings: Sequence[Callable[[], None]]) -> None:
        self._working, self._error = len(readings), None
        for read in readings:
            _start(partial(self._run_one, read))
        try:
            while requests := self._next():
                self._answer(requests)
        except BaseException as error:  # such as KeyboardInterrupt: the readings stop, too
            self._error = error
            while requests := self._next():
                self._answer(requests)
        if self._error:
            raise self._error

    def _run_one(self, read: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            read()
        except BaseException as raised:
            error = raised
        with self._changed:
            self._error, self._working = self._error or error, self._working - 1
            self._changed.notify()

    def _next(self) -> list[_Request]:
        """Return the requests of all readings, once each of them waits for Redis; [] once all have ended."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) == self._working)
            requests, self._waiting = self._waiting, []
        return requests

    def _answer(self, requests: Sequence[_Request]) -> None:
        error, commands = self._error, [one for request in requests for one in request.commands]
        replies: Iterator[object] = iter(())
        if commands and error is None:
            began = time.monotonic()
            try:
                replies = iter(self._whole.replies(commands))
            except Exception as raised:
                error = raised
            self._measure(time.monotonic() - began)
        for request in requests:
            request.error, request.replies = error, [] if error else [next(replies) for _ in request.commands]
        for request in requests:
            request.answered.set()

    def _measure(self, seconds: float) -> None:
        """Keep the time of a round trip. In a bundle within another one, only that one's are round trips."""
        if self._whole.shortest is None:
            self.shortest = min(seconds, self.shortest or seconds)
        else:
            self.shortest = self._whole.shortest

    # What a Store calls.

    def replies(self, commands: Iterable[Sequence[Arg]], atomic: bool = False) -> list[object]:
        asked = list(commands)
        if atomic:
            return self._whole.replies(asked, atomic)
        request = _Request(asked)
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        request.answered.wait()
        if request.error:
            raise request.error
        return request.replies

    def execute(self, command: str, *args: Arg) -> object:
        [reply] = self.replies([(command, *args)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    @property
    def client(self) -> redis.Redis:
        return self._whole.client

    def ask(self, packed: bytes) -> object:
        return self._whole.ask(packed)

    def ask_many(self, packed: Sequence[bytes]) -> list[object]:
        return self._whole.ask_many(packed)

    def disconnect(self) -> None:
        self._whole.disconnect()

    def close(self) -> None:
        """Close nothing: the connections are those of another."""
