"""The soft time limit of a task's body: a signal raises SoftTimeLimitExceeded in the body, never after its return."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec, Protocol, TypeVar

from celery.exceptions import SoftTimeLimitExceeded

P = ParamSpec("P")
T = TypeVar("T")

_AGAIN = 0.01  # seconds until a signal is sent again that arrived when the body had not begun or had just returned


class Call(Protocol):
    """A function that calls `function` with its arguments, and applies the soft time limit to it."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


def call_without(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function without a soft time limit."""
    return function(*args, **kwargs)


@contextmanager
def soft_limit(seconds: float | None) -> Iterator[Call]:
    """Yield a function that calls a task's body with a soft time limit of `seconds`; None or 0: no limit. The limit
    works only in the main thread (pools prefork and solo), since Python handles signals there; elsewhere there is none.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield call_without
        return
    limit = _SoftLimit(seconds)
    try:
        yield limit.call
    finally:
        limit.end()


class _SoftLimit:
    """Raises SoftTimeLimitExceeded in a body after some seconds. A thread sends SIGUSR1, the signal that Celery uses
    for this, to the main thread. `setitimer` is not used: a process has only one such timer, which the body may need.

    `_begun`, `_over`: the body has begun, has ended; `_due`: the thread has sent the signal.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = self._over = self._due = False
        self._wanted = True  # the thread is to send the signal, the first time or again
        self._ended = threading.Event()
        self._before = signal.getsignal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, self._on_signal)
        self._thread = threading.Thread(target=self._send, name="coordinator-soft-limit", daemon=True)
        self._thread.start()

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._begun = True
        try:
            return function(*args, **kwargs)
        finally:
            self._over = True

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Handle SIGUSR1: raise SoftTimeLimitExceeded if the body runs. Python calls this between two instructions of
        the main thread. If these are in `call` itself, the body has not begun or has just returned; then let the thread
        send the signal again, which finds the body running or over. A signal not sent by the thread goes to the handler
        that was installed before.
        """
        if not self._due and callable(self._before):
            self._before(signum, frame)  # the thread has not sent this signal
        elif not self._begun or frame is None or frame.f_code is _SoftLimit.call.__code__:
            self._wanted = True
        elif not self._over:
            self._over = True
            self._ended.set()
            raise SoftTimeLimitExceeded(self._seconds)

    def _send(self) -> None:
        pause = self._seconds
        while not self._ended.wait(pause):
            pause = _AGAIN
            if self._wanted:
                self._wanted, self._due = False, True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def end(self) -> None:
        self._over = True
        self._ended.set()
        self._thread.join()  # once the thread has ended, no late signal can hit the next job
        signal.signal(signal.SIGUSR1, self._before or signal.SIG_DFL)
