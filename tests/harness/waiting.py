"""Waiting for conditions instead of sleeping."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], object], timeout: float = 60.0, what: Callable[[], str] | str = "") -> None:
    """Until `condition()` is true; fails, saying `what`, when it is not within `timeout` seconds.

    A dear condition is asked for a fifth of the time, unless it takes longer than 75 ms.
    """
    asked = time.monotonic()
    deadline, pause = asked + timeout, 0.01
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what or condition}")
        _rest(asked, pause)
        pause = min(1.2 * pause, 0.05)
        asked = time.monotonic()


def _rest(asked: float, least: float) -> None:
    """Before one who asked since then asks again."""
    time.sleep(max(least, min(4 * (time.monotonic() - asked), 0.3)))


def wait_for_count(
    count: Callable[[], int], number: int, still: float = 60.0, what: Callable[[], str] | str = ""
) -> None:
    """Until `count()` is at least `number`; fails, saying `what`, when it has not grown for `still` seconds. So a slow
    machine fails no test that gets on.
    """
    seen, grown, asked = -math.inf, 0.0, time.monotonic()
    while (now := count()) < number:
        if now > seen:
            seen, grown = now, asked
        elif asked - grown >= still:
            raise AssertionError(f"not within {still} s: {now} of {number}: {what() if callable(what) else what}")
        _rest(asked, 0.05)
        asked = time.monotonic()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """The body takes less."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


@contextmanager
def looking(look: Callable[[], T], pause: float = 0.0) -> Iterator[list[T]]:
    """What `look` tells, asked again and again from another thread until the body ends."""
    seen: list[T] = []
    over = threading.Event()

    def look_on() -> None:
        while not over.is_set():
            seen.append(look())
            over.wait(pause)

    watcher = threading.Thread(target=look_on)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
