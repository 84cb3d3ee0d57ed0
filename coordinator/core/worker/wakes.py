"""Receives the wake-ups of a worker. Each wake-up starts a runner in one slot of the worker's pool.

    Redis function ─► list `wakes:…` in Redis ─► the supervisor ─► a socket ─► the worker's event loop ─► its pool

Wake-ups do not use the broker. The supervisor writes the name of a wake-up into the socket. The worker's event loop
watches the socket as well as the connection to the broker, and passes each wake-up, as a message of the task
`coordinator.run`, to Celery's strategy for that task. Where Celery has no event loop (gevent, eventlet, some brokers),
a thread reads the socket. After two seconds, the supervisor sends a wake-up again that started no runner.
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

from coordinator.core.celery_patches.last_slot import LastSlot, last_slot
from coordinator.core.runner.claim import TASK
from coordinator.core.threads import StoppableThread

logger = logging.getLogger(__name__)

_LONGEST = 255  # bytes of a wake-up's name, at most
_NO_LIMIT = 366 * 86400  # seconds: the app's global time limits must not end a runner, which applies those of each job
_PAUSE = 0.01  # seconds after which the thread checks again for a free slot
_STOP = 0.5  # seconds that the thread waits for a wake-up before it checks whether it is to stop


class WakeUps:
    """Reads wake-ups from the socket between supervisor and worker, and starts runners. `supervisor_end`: the file
    descriptor into which the supervisor writes. `slots`: shares the last free slot with messages of a Redis broker;
    None where nothing is to share.
    """

    def __init__(self) -> None:
        # SEQPACKET keeps the boundaries of messages: each recv returns one wake-up.
        self._socket, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._tick: Callable[[], None] | None = None
        self._thread: _Reader | None = None
        self._watched = False
        self.slots: LastSlot | None = None

    @property
    def supervisor_end(self) -> int:
        return self._other.fileno()

    def start(self, c: Consumer) -> None:
        """Begin to read wake-ups. Called when Celery begins to consume, and after each new connection to its broker."""
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
        """Add the socket to the event loop if the pool has a free slot. The loop calls this before each of its turns,
        after kombu has asked the broker for a message for that slot.
        """
        if not self._watched and self._wait() < math.inf:
            self._watched = True
            c.hub.add_reader(self._socket.fileno(), self._read, c)

    def _read(self, c: Consumer) -> None:
        """Read one wake-up from the socket and start a runner. If the slot is taken by now, or is the broker's to fill,
        leave the wake-up in the socket until later. A timer for this is set here and not in `_watch`, where it would
        not shorten the event loop's next wait.
        """
        c.hub.remove_reader(self._socket.fileno())
        wait = self._wait()
        self._watched = 0 < wait < math.inf
        if self._watched:
            c.timer.call_after(wait, self._watch_again)
        elif wait == 0:
            with suppress(BlockingIOError):
                self._take(c, self._socket.recv(_LONGEST))

    def _watch_again(self) -> None:
        self._watched = False

    def admit(self, c: Consumer, message: Message) -> bool:
        """True if the worker may take this message of the broker; False if the pool has no free slot, and the message
        is back in its queue.
        """
        if self.slots is None:
            return True
        if self._watched and self.slots.is_for_wake_up:
            self._read(c)
        return self.slots.admit(message)

    def _receive(self, c: Consumer, stopping: threading.Event) -> None:
        """Wait for a wake-up, half a second at most, and then for a free slot; then start a runner. Under gevent and
        eventlet, other greenlets run in the meantime.
        """
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
        """Start a runner for the wake-up `wake`. Never raises, since an exception would end the worker: it is logged,
        and the supervisor sends the wake-up again.
        """
        try:
            c.strategies[TASK](_message(wake.decode()), None, _settle, _settle, c.on_task_message)
            if self.slots:
                self.slots.took()
        except Exception:
            logger.exception("cannot start a runner; the supervisor sends its wake-up again")


class _Reader(StoppableThread):
    """A thread that reads wake-ups from the socket in a worker without an event loop, by calling `receive` again and
    again.
    """

    def __init__(self, receive: Callable[[threading.Event], None]) -> None:
        super().__init__("coordinator-wakes", 2 * _STOP)
        self._receive = receive

    def run(self) -> None:
        while not self.stopping.is_set():
            self._receive(self.stopping)


def _message(wake: str) -> Message:
    """Return a message of the task `coordinator.run` with the id `wake`, as if a broker had delivered it."""
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
    """Do nothing to acknowledge or reject a wake-up's message: no broker delivered it."""
