"""When leases of plain code are renewed, and when they count as lost, on a clock of the test's own."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator import Coordinator, StoreUnavailable
from coordinator.core.grabs.grab import Grabber, Terms
from coordinator.core.lanes.client import LaneClient
from coordinator.core.locks import leases
from coordinator.core.locks.leases import Lease, Renewer
from coordinator.core.locks.locks import Locks
from coordinator.core.store.client import Store
from coordinator.core.store.wire import Arg
from tests.harness.waiting import wait_until

TTL, ANSWER = 60.0, 2.0  # seconds


class Enough(Exception):
    """Ends a thread's loop."""


class Clock:
    """In place of the `time` and `threading` of leases.py: who waits there is past it at once, and the test itself runs
    the threads. `meanwhile`: happens during the next wait.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.threads: dict[str, Callable[[], None]] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.Event, self.Condition = threading.Event, lambda: Waits(self)

    def monotonic(self) -> float:
        return self.now

    def Thread(self, target: Callable[[], None], name: str, daemon: bool) -> SimpleNamespace:
        self.threads[name] = target
        return SimpleNamespace(start=lambda: None, is_alive=lambda: True)


class Waits(threading.Condition):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.notified = clock, False

    def wait(self, timeout: float | None = None) -> bool:
        self.notified, until = False, self.clock.now + (timeout or 0)
        meanwhile, self.clock.meanwhile = self.clock.meanwhile, lambda: None
        meanwhile()
        if not self.notified:
            self.clock.now = until
        return True

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        return predicate()

    def notify_all(self) -> None:
        self.notified = True


class Asked(Store):
    """Notes when renewals are asked for, each of which is answered ANSWER later. `away`: the numbers of those without
    an answer; `enough`: the number of the one that ends it all.
    """

    def __init__(self, coordinator: Coordinator, times: Clock) -> None:
        super().__init__(coordinator.settings)
        self.times, self.away, self.enough, self.asked = times, set[int](), 0, list[float]()

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        assert name == "lease_renew"
        self.asked.append(self.times.now)
        if len(self.asked) == self.enough:
            raise Enough
        self.times.now += ANSWER
        if len(self.asked) in self.away:
            raise StoreUnavailable("away")
        return super().step_many(name, calls)

    @property
    def pauses(self) -> list[float]:
        """Between two of them."""
        return [later - one for one, later in itertools.pairwise(self.asked)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leases, "time", clock)
    monkeypatch.setattr(leases, "threading", clock)
    return clock


@pytest.fixture
def asked(coordinator: Coordinator, clock: Clock) -> Asked:
    return Asked(coordinator, clock)


@pytest.fixture
def renewer(asked: Asked) -> Renewer:
    return Renewer(asked)


def held(store: Store, key: str) -> Lease:
    fence = store.step("lock_take", f"lock-{key}", key, "queue", "token", 600_000, 10**9, "")[3]
    return Lease(key, f"lock-{key}", "token", int(fence), LaneClient(store).holds)


def run(clock: Clock, thread: str) -> None:
    with pytest.raises(Enough):
        clock.threads[f"coordinator-{thread}"]()


def test_a_lease_is_renewed_each_third_of_its_ttl(clock: Clock, asked: Asked, renewer: Renewer) -> None:
    began, asked.enough = clock.now, 6
    renewer.add(held(asked, "k"), TTL, began)
    run(clock, "renewer")
    assert asked.asked == pytest.approx([began + TTL / 3 * number for number in range(1, 7)])


def test_a_renewal_without_an_answer_is_repeated_after_a_tenth_of_the_ttl(
    clock: Clock, asked: Asked, renewer: Renewer
) -> None:
    asked.away, asked.enough = {2, 3}, 5
    renewer.add(held(asked, "k"), TTL, clock.now)
    run(clock, "renewer")
    assert asked.pauses == pytest.approx([TTL / 3, TTL / 10, TTL / 10, TTL / 3])


def test_a_shorter_lease_that_comes_meanwhile_is_renewed_in_its_own_time(
    clock: Clock, asked: Asked, renewer: Renewer
) -> None:
    began, asked.enough = clock.now, 1
    renewer.add(held(asked, "long"), 100 * TTL, began)
    clock.meanwhile = lambda: renewer.add(held(asked, "short"), TTL, began)
    run(clock, "renewer")
    assert asked.asked == pytest.approx([began + TTL / 3])


@pytest.mark.parametrize("confirmed", [0, 1, 2])
def test_a_lease_is_lost_its_ttl_after_the_last_request_that_was_confirmed(
    clock: Clock, asked: Asked, renewer: Renewer, confirmed: int
) -> None:
    lease, began = held(asked, "k"), clock.now
    asked.away, asked.enough = {confirmed + 1, confirmed + 2}, confirmed + 3
    renewer.add(lease, TTL, began)
    run(clock, "renewer")
    assert not lease.lost.is_set()
    clock.threads["coordinator-lease-clock"]()
    assert lease.lost.is_set()
    assert clock.now == pytest.approx([began, *asked.asked][confirmed] + TTL)


class Sent(Store):
    """Notes when each step was sent."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator.settings)
        self.sent: list[tuple[str, float]] = []

    def step(self, name: str, *args: Arg, job_id: str | None = None) -> Any:
        self.sent.append((name, time.monotonic()))
        return super().step(name, *args, job_id=job_id)


class Added(Renewer):
    """Notes which leases it is to keep."""

    def add(self, lease: Lease, ttl: float, since: float) -> None:
        self.added = ttl, since
        super().add(lease, ttl, since)


def release_once_awaited(coordinator: Coordinator, key: str) -> None:
    wait_until(lambda: coordinator.lane(key).length == 2)
    coordinator.store.step("lock_release", f"lock-{key}", "token")


def test_a_lease_counts_from_before_the_request_that_was_granted_it(coordinator: Coordinator) -> None:
    store = Sent(coordinator)
    lanes, renewer = LaneClient(store), Added(store)

    def counts_from(step: str) -> None:
        ttl, since = renewer.added
        (*_, before), sent = [at for _, at in store.sent[:-1]], store.sent[-1]
        assert (ttl, sent[0]) == (TTL, step)
        assert before <= since <= sent[1]

    locks = Locks(store, lanes, renewer)
    store.step("clock_read")
    with locks.lock("k", TTL):
        counts_from("lock_take")
    held(store, "waited")
    releasing = threading.Thread(target=release_once_awaited, args=(coordinator, "waited"))
    releasing.start()
    with locks.lock("waited", TTL, blocking_timeout=60):
        counts_from("lock_wait")
    releasing.join()
    grabber = Grabber(store, renewer, lanes.holds, lambda: "", lambda: False)
    with grabber.grab("report", "1", "mine", Terms(TTL, "wait", 600, 3)):
        counts_from("grab_take")
