"""A worker's wake-ups: each starts a runner in one of its slots.

    a step ─► list `wakes:…` in Redis ─► the clock ─► a socket ─► the worker's loop ─► its pool

No broker has a part in it. The clock writes the name of a wake-up into the socket. The worker's loop, which watches the
socket beside its broker, gives it to Celery's own strategy, as a message that nobody sent. Where Celery has no such
loop (gevent, eventlet, some brokers), a thread reads the socket. A wake-up that is lost costs two seconds: the clock
writes again what no runner has answered.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from celery.worker.consumer import Consumer
from kombu.message import Message

from coordinator.celery_patches.last_slot import LastSlot, last_slot
from coordinator.runner.claim import TASK
from coordinator.threads import StoppableThread

logger = logging.getLogger(__name__)

_LONGEST = 255  # bytes of a name
_NO_LIMIT = 366 * 86400  # seconds: an app's global limits must not end a runner, which applies those of each job
_PAUSE = 0.01  # seconds between two looks of the thread for a free slot
_STOP = 0.5


class WakeUps:
    """The worker's end of the socket. `clocks_end`: the descriptor of the other one, for each of its clocks."""

    def __init__(self) -> None:
        self._socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._tick: Callable[[], None] | None = None
        self._thread: _Reader | None = None
        self._watched = False
        self.slots: LastSlot | None = None

    @property
    def clocks_end(self) -> int:
        return self._other.fileno()

    def start(self, c: Consumer) -> None:
        """Take wake-ups, once Celery consumes; again after each loss of its broker."""
        self.slots = last_slot(c)
        if c.hub is not None:
            self._socket.setblocking(False)
            self._tick = partial(self._watch, c)
            c.hub.on_tick.add(self._tick)
        else:
            self._thread = _Reader(partial(self._receive, c))
            self._thread.start()

    def stop(self, c: Consumer) -> None:
        if self._tick is not None:
            c.hub.on_tick.discard(self._tick)
            c.hub.remove_reader(self._socket.fileno())
        if self._thread is not None:
            self._thread.stop()
        self._tick = self._thread = None
        self._watched = False

    def _watch(self, c: Consumer) -> None:
        """Before each look of the loop: have it watch the socket, too, if a slot is free. By then kombu has asked the
        broker for that slot.
        """
        if not self._watched and self._wait() < math.inf:
            self._watched = True
            c.hub.add_reader(self._socket.fileno(), self._read, c)

    def _read(self, c: Consumer) -> None:
        """Take one wake-up, unless its slot has been taken, or the broker has a turn: then look again after that. Only
        a timer that is set now, and none of `_watch`, shortens the loop's next look.
        """
        c.hub.remove_reader(self._socket.fileno())
        wait = self._wait()
        self._watched = 0 < wait < math.inf
        if self._watched:
            c.timer.call_after(wait, self._look_again)
        elif wait == 0:
            with suppress(BlockingIOError):
                self._take(c, self._socket.recv(_LONGEST))

    def _look_again(self) -> None:
        self._watched = False

    def admit(self, c: Consumer, message: Message) -> bool:
        """False: no slot is left for this message of the broker, and it has gone back to its queue."""
        if self.slots is None:
            return True
        if self._watched and self.slots.is_for_wake_up:
            self._read(c)
        return self.slots.admit(message)

    def _receive(self, c: Consumer, stopping: threading.Event) -> None:
        """Wait for a wake-up and for a slot. gevent and eventlet go on meanwhile."""
        self._socket.settimeout(_STOP)
        with suppress(TimeoutError):
            wake = self._socket.recv(_LONGEST)
            while self._wait() > 0:
                if stopping.wait(_PAUSE):
                    return
            self._take(c, wake)

    def _wait(self) -> float:
        return self.slots.wait() if self.slots else 0.0

    def _take(self, c: Consumer, wake: bytes) -> None:
        """Start a runner. Never raises: an exception here would end the worker, and the clock wakes again."""
        try:
            c.strategies[TASK](_message(wake.decode()), None, _settle, _settle, c.on_task_message)
            if self.slots:
                self.slots.took()
        except Exception:
            logger.exception("cannot start a runner")


class _Reader(StoppableThread):
    """Reads the socket where Celery has no loop that could."""

    def __init__(self, receive: Callable[[threading.Event], None]) -> None:
        super().__init__("coordinator-wakes", 2 * _STOP)
        self._receive = receive

    def run(self) -> None:
        while not self.stopping.is_set():
            self._receive(self.stopping)


def _message(wake: str) -> Message:
    headers = {
        "lang": "py",
        "task": TASK,
        "id": wake,
        "retries": 0,
        "timelimit": [_NO_LIMIT, _NO_LIMIT],
        "ignore_result": True,
    }
    return Message(
        "[[], {}, {}]", wake, headers=headers, properties={}, delivery_info={"exchange": "", "routing_key": ""},
        content_type="application/json", content_encoding="utf-8", accept={"application/json"},
    )  # fmt: skip


def _settle(*_: object) -> None:
    """Acknowledge nothing: nobody sent the message."""
