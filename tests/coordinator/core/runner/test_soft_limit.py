"""A soft limit strikes a body that runs, and nothing after it."""

import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Task
from celery.exceptions import SoftTimeLimitExceeded

from coordinator import Coordinator
from coordinator.core.runner import soft_limit as module
from coordinator.core.runner.soft_limit import Call, soft_limit

LIMIT = 0.05


def spin(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return "well"


def test_it_is_raised_in_the_body_once_and_the_handler_goes() -> None:
    before = signal.getsignal(signal.SIGUSR1)

    def body() -> str:
        try:
            return spin(5.0)
        except SoftTimeLimitExceeded:
            return spin(3 * LIMIT) and "late"

    with soft_limit(LIMIT) as call:
        assert call(body) == "late"
    assert signal.getsignal(signal.SIGUSR1) == before


def test_it_is_waited_for_as_long_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(module, "threading", SimpleNamespace(**{**vars(threading), "Event": Ended}))
    with soft_limit(600) as call:
        assert call(spin, 0.0) == "well"
    assert waits == [600]


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_never_comes_beside_the_body(when: str) -> None:
    def beside(call: Call) -> None:
        spin(3 * LIMIT)
        if when == "before":
            with pytest.raises(SoftTimeLimitExceeded):
                call(spin, 5.0)

    with soft_limit(LIMIT) as call:
        if when == "after":
            assert call(spin, 0.0) == "well"
        beside(call)


def test_where_it_falls_on_the_return_either_the_body_sees_it_or_nobody() -> None:
    def body(until: float) -> str:
        try:
            while time.perf_counter() < until:
                pass
        except SoftTimeLimitExceeded:
            return "late"
        return "well"

    for number in range(300):
        with soft_limit(0.002) as call:
            assert call(body, time.perf_counter() + 0.002 + number * 1e-6) in ("well", "late")


def test_a_job_whose_body_has_returned_in_time_succeeds_however_long_its_handlers_take(
    coordinator_jobs: Callable[[Coordinator], Any],
) -> None:
    app = Celery("soft", broker="memory://", set_as_current=False)
    coordinator = Coordinator(app)

    class Slow(Task):  # type: ignore[misc]
        def on_success(self, *_: object) -> None:
            spin(3 * LIMIT)

    @app.task(base=Slow, bind=True, soft_time_limit=LIMIT, shared=False)  # type: ignore[untyped-decorator]
    def quick(self: Any, again: bool = True) -> str:
        return self.run(again=False) if again else "well"

    @app.task(bind=True, soft_time_limit=LIMIT, shared=False)  # type: ignore[untyped-decorator]
    def nested(self: Any, again: bool = True) -> str:
        """The call of itself does not end the limit."""
        return self.run(again=False) and spin(5.0) if again else "well"

    coordinator_jobs(coordinator)
    assert coordinator.submit("k", quick.s()).get() == "well"
    with pytest.raises(SoftTimeLimitExceeded):
        coordinator.submit("k", nested.s()).get()
