"""Waiting for conditions instead of sleeping."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], object], timeout: float = 20.0, what: Callable[[], str] | str = "") -> None:
    """Until `condition()` is true; fails, saying `what`, when it is not within `timeout` seconds.

    A dear condition is asked for a seventh of the time, unless it takes longer than 50 ms.
    """
    asked = time.monotonic()
    deadline, pause = asked + timeout, 0.01
    while not condition():
        if (told := time.monotonic()) >= deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what or condition}")
        time.sleep(max(pause, min(6 * (told - asked), 0.3)))
        pause = min(1.2 * pause, 0.05)
        asked = time.monotonic()


def wait_for_count(
    count: Callable[[], int], number: int, still: float = 20.0, what: Callable[[], str] | str = ""
) -> None:
    """Until `count()` is at least `number`; fails, saying `what`, when it has not grown for `still` seconds. So a slow
    machine fails no test that gets on.
    """

    def told() -> str:
        return f"{count()} of {number}: {what() if callable(what) else what}"

    while (seen := count()) < number:
        wait_until(lambda seen=seen: count() > seen, still, told)  # type: ignore[misc]


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
