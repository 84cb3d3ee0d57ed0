"""The soft limit of a body: SoftTimeLimitExceeded, raised in it by a signal. None comes once the body has returned."""

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

_AGAIN = 0.01  # seconds until a signal that came too soon is sent again


class Call(Protocol):
    """Calls the body."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


def call_without(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


@contextmanager
def soft_limit(seconds: float | None) -> Iterator[Call]:
    """Give what calls the body. The limit holds in the main thread (prefork, solo)."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield call_without
        return
    limit = _SoftLimit(seconds)
    try:
        yield limit.call
    finally:
        limit.end()


class _SoftLimit:
    """A thread sends the signal that Celery uses, since the process's only interval timer belongs to the body."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = self._over = self._due = False
        self._wanted = True  # a signal
        self._ended = threading.Event()
        self._before = signal.getsignal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, self._strike)
        self._thread = threading.Thread(target=self._send, name="coordinator-soft-limit", daemon=True)
        self._thread.start()

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._begun = True
        try:
            return function(*args, **kwargs)
        finally:
            self._over = True

    def _strike(self, signum: int, frame: FrameType | None) -> None:
        """Handlers run between two instructions of this thread: in `call` itself, the body has not begun, or has just
        returned.
        """
        if not self._due and callable(self._before):
            self._before(signum, frame)  # the signal is not ours
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
        self._thread.join()  # from here on no signal comes, which would hit the next job
        signal.signal(signal.SIGUSR1, self._before or signal.SIG_DFL)
