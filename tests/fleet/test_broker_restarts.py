"""A worker consumes again each time its broker comes back: ordinary tasks, and jobs.

`make matrix` asks this of pairs of kombu and redis-py: some stay connected and never read again.
"""

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.harness.fleet import Fleet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

HALF_OPEN = 8.0  # seconds: longer than the interval of health checks


@pytest.fixture
def network(fleet: Fleet, own_redis: RedisServer) -> Iterator[Proxy]:
    """Between the worker and a broker of its own; the coordinator's Redis, the backend and clients stay connected."""
    fleet.environ["TEST_BROKER"] = own_redis.url(1)
    with Proxy(own_redis.port) as between:
        yield between


def pass_time(seconds: float, over: Callable[[], bool] = lambda: False) -> None:
    until = time.monotonic() + seconds
    wait_until(lambda: over() or time.monotonic() > until, seconds + 5)


def test_a_worker_consumes_again_each_time_its_broker_comes_back(
    fleet: Fleet, own_redis: RedisServer, network: Proxy
) -> None:
    work = fleet.shop.work
    worker = fleet.worker(TEST_BROKER=network.url(1))
    numbers = count()

    def consumes(when: str) -> None:
        """A message may be lost with its connection, but not one after the other."""
        until, names = time.monotonic() + 60, list[str]()
        job_id = fleet.coordinator.submit("key", work.s(f"job {when}")).id
        assert fleet.coordinator.wait(job_id, 60).state == "succeeded"
        while not any(fleet.stamps(name, "end") for name in names):
            assert time.monotonic() < until, f"it is deaf {when}: {fleet.logs()[-5000:]}"
            names.append(f"task {next(numbers)}")
            work.delay(names[-1])
            pass_time(2, over=lambda: bool(fleet.stamps(names[-1], "end")))

    def told() -> int:
        return worker.log.read_text().count("Cannot connect to")

    consumes("at first")
    own_redis.kill()
    own_redis.start()
    consumes("after a restart at once")
    own_redis.kill()
    before = told()
    wait_until(lambda: told() > before, what=fleet.logs)
    own_redis.start()
    consumes("after a while without a broker")
    for kind in ("normal", "pubsub"):
        with own_redis.client() as client:
            client.client_kill_filter(_type=kind)
        consumes(f"after its connections were cut that are {kind}")
    network.swallow()
    pass_time(HALF_OPEN)
    network.heal()
    consumes("after its connections were half-open")
    assert worker.process.poll() is None
