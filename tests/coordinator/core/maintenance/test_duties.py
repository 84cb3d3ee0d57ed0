"""When the duties of maintenance look."""

import queue
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from coordinator.core.maintenance import duties
from coordinator.core.maintenance.__main__ import wake
from coordinator.core.maintenance.duties import Duty, report_life
from coordinator.core.supervisor import __main__ as main


class Looks:
    """A duty that nothing but `wake` makes look; `more`: what its looks return, one after the other."""

    def __init__(self, *more: bool) -> None:
        self.done: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._more = iter(more)
        self.duty = Duty("looks", self._look, pause=3600)

    def _look(self, heartbeat: Callable[[], None]) -> bool:
        self.done.put(1)
        return next(self._more, False)


@pytest.fixture
def looks() -> Iterator[Looks]:
    made = Looks(False, True, False)
    made.duty.start()
    yield made
    made.duty.stop()


def test_a_duty_looks_when_it_is_woken_and_again_at_once_while_there_is_more(looks: Looks) -> None:
    looks.duty.wake()
    looks.done.get(timeout=60)
    looks.duty.wake()
    for _ in range(2):
        looks.done.get(timeout=60)
    assert looks.done.empty()


def test_a_duty_looks_every_few_seconds_though_nobody_wakes_it() -> None:
    duty, waits = Duty("looks", lambda _: duty.stopping.set()), list[float | None]()
    duty._woken.wait = waits.append  # type: ignore[assignment,method-assign]
    duty.run()
    assert waits == [5.0]


def test_a_line_of_the_supervisor_wakes_all_duties() -> None:
    several = [Duty("one", lambda _: None), Duty("two", lambda _: None)]
    for duty in several:
        duty._woken.clear()
    wake(several, {"look": 1})
    assert [duty._woken.is_set() for duty in several] == [True, True]


def test_maintenance_gives_signs_of_life_until_one_piece_of_work_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The supervisor kills it some seconds after the last sign."""
    now, signs, waits = 1000.0, list[float](), list[float]()
    monkeypatch.setattr(duties, "time", SimpleNamespace(monotonic=lambda: now))
    duty = Duty("looks", lambda _: None)

    def ended(seconds: float) -> bool:
        nonlocal now
        now += seconds
        waits.append(seconds)
        return len(waits) > 30

    report_life([duty], ended, lambda: signs.append(now))
    assert set(waits) == {1.0}
    assert 1008 <= signs[-1] <= 1012
    assert 10 < main._PATIENCE <= 20
