"""A task's view of its job while Redis is away."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from coordinator import LeaseLost, StoreUnavailable
from coordinator.core.jobs.current import CurrentJob
from coordinator.core.lanes.client import LaneClient
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from tests.harness.hand_node import Puppet, Taken
from tests.harness.proxy import Proxy


@pytest.fixture
def far(node: Puppet, proxy: Proxy) -> Iterator[LaneClient]:
    """The lanes as one sees them whose way to Redis can be cut."""
    store = Store(Settings(url=proxy.url(), prefix=node.store.settings.prefix, timeout=1))
    yield LaneClient(store)
    store.close()


def view(taken: Taken, lanes: LaneClient, ttl: float) -> CurrentJob:
    return CurrentJob(taken.id, ("a",), taken.token, taken.fence, taken.attempt, lanes, ttl=ttl)


def test_progress_is_news_whose_loss_fails_no_job(node: Puppet, far: LaneClient, proxy: Proxy) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    job = view(taken, far, 60)
    proxy.cut()
    job.progress(1, 2)
    began = time.monotonic()
    for _ in range(100):
        job.progress(2, 2)
    assert time.monotonic() - began < 15, "a Redis that is away does not hold up the job each time"
    proxy.heal()
    view(taken, far, 60).progress(2, 2)
    assert node.lanes.job("j").progress == (2, 2)
    node.finish(taken)


def test_a_check_waits_for_a_redis_that_comes_back_within_the_lease(
    node: Puppet, far: LaneClient, proxy: Proxy
) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    job = view(taken, far, 60)
    proxy.cut()
    healer = threading.Timer(0.5, proxy.heal)
    healer.start()
    job.check()
    healer.join()
    node.lapse("j")
    node.sweep()
    again = node.must_take()
    with pytest.raises(LeaseLost):
        job.check()
    node.finish(again)


def test_a_check_gives_up_with_the_lease_since_nobody_can_say(node: Puppet, far: LaneClient, proxy: Proxy) -> None:
    node.submit("a", job_id="j")
    taken = node.must_take()
    job = view(taken, far, 1.5)
    job.check()
    proxy.cut()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        job.check()
    assert time.monotonic() - began > 1
    proxy.heal()
    job.check()
    node.finish(taken)


@pytest.mark.parametrize(
    ("job_id", "instant"),
    [
        ("report@2026-11-22T07:00:00Z", datetime(2026, 11, 22, 7, tzinfo=UTC)),
        ("report@2026-11-22T07:00:00.250Z", datetime(2026, 11, 22, 7, microsecond=250_000, tzinfo=UTC)),
        ("report@run:again", None),
        ("order-42", None),
    ],
)
def test_a_task_learns_the_instant_of_its_tick(job_id: str, instant: datetime | None) -> None:
    assert CurrentJob(job_id, ("a",), "token", 1, 1, None).instant == instant
