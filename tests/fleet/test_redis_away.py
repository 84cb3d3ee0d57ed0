"""Redis killed, silent, or losing replies under a working fleet: nothing runs twice, nothing is lost."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator import Coordinator, StoreUnavailable
from coordinator.store.library import current
from tests.harness.fleet import Fleet
from tests.harness.leftovers import leftovers
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

TTL = 2.0


def client_of(server: RedisServer) -> Coordinator:
    """Past any proxy."""
    return Coordinator(url=server.url(0), prefix="own")


@pytest.fixture
def own_fleet(own_redis: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """On a Redis of its own."""
    with Fleet(own_redis, "own", tmp_path, lock_ttl=TTL, node_ttl=1.5, sweep=0.2, timeout=0.5) as fleet:
        yield fleet
        direct = client_of(own_redis).store
        wait_until(lambda: not leftovers(direct), 10, lambda: str(leftovers(direct)))
        direct.close()


@pytest.fixture
def proxy(own_fleet: Fleet) -> Iterator[Proxy]:
    """Between the coordinator's clients and its Redis; the broker is reached directly."""
    with Proxy(own_fleet.server.port) as between:
        own_fleet.environ["COORDINATOR_URL"] = between.url(0)
        yield between


def pass_time(seconds: float) -> None:
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, seconds + 5)


def name_of(step: str) -> bytes:
    return f"{step}_{current().digest}".encode()


def test_a_redis_that_was_away_longer_than_a_lease_costs_no_holder_its_job(own_fleet: Fleet) -> None:
    own_fleet.worker("one", 2)
    own_fleet.worker("two", 2)
    work = own_fleet.shop.work
    names = [f"{key}{turn}" for key in "abcd" for turn in (1, 2, 3)]
    found = own_fleet.coordinator.submit_many([(name[0], work.s(name, 6 if name[1] == "1" else 0)) for name in names])
    wait_until(lambda: len(own_fleet.stamps(what="begin")) == 4, 20)
    own_fleet.server.kill()
    with pytest.raises(StoreUnavailable):
        own_fleet.coordinator.job(found[0].id)
    pass_time(TTL + 1)
    own_fleet.server.start()
    for submission in found:
        job = own_fleet.coordinator.wait(submission.id, 40)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0), own_fleet.logs()[-5000:]
    begun = [stamp.name for stamp in own_fleet.stamps(what="begin")]
    assert sorted(begun) == names
    for key in "abcd":
        assert [name for name in begun if name[0] == key] == [f"{key}{turn}" for turn in (1, 2, 3)]


def test_a_worker_that_stops_at_once_while_redis_is_away_costs_its_jobs_no_loss(own_fleet: Fleet) -> None:
    """Its clock puts them back once Redis answers."""
    own_fleet.configure(lock_ttl=20)
    worker, depot = own_fleet.worker("one", 2, app="depot"), own_fleet.depot
    job_id = depot.coordinator.submit("a", depot.held.s("job"), max_losses=0).id
    own_fleet.begun("job")
    own_fleet.worker("two", 2, app="depot")
    own_fleet.server.kill()
    worker.kill(signal.SIGQUIT)
    worker.process.wait(30)
    own_fleet.server.start()
    wait_until(lambda: len(own_fleet.stamps("job", "begin")) == 2, 10, own_fleet.logs)
    for _ in range(2):
        own_fleet.go("job")
    job = depot.coordinator.wait(job_id, 20)
    assert (job.state, job.attempt, job.losses, job.node) == ("succeeded", 1, 0, "two@test")


def test_whatever_reply_is_lost_each_job_runs_once_and_in_order(own_fleet: Fleet, proxy: Proxy) -> None:
    worker = own_fleet.worker(concurrency=2)
    coordinator, work = own_fleet.coordinator, own_fleet.shop.work
    names: list[str] = []

    def submit(seconds: float = 0.0) -> str:
        names.append(f"{len(names):02}")
        return coordinator.submit("a", work.s(names[-1], seconds)).id

    coordinator.wait(submit(), 20)
    for step in ("runner_take", "job_finish", "job_finish", "notices_sent", "runner_take"):
        proxy.lose_reply(name_of(step))
        wait_until(lambda: coordinator.wait(submit(), 20).over and proxy.lost.is_set(), 30, step)
    for step in ("lease_renew", "sweep", "node_beat"):
        job_id = submit(2.0)
        proxy.lose_reply(name_of(step))
        coordinator.wait(job_id, 20)
        assert proxy.lost.is_set(), step

    proxy.lose_reply(name_of("job_submit"))
    with pytest.raises(StoreUnavailable) as unknown:
        submit()
    assert unknown.value.job_id
    again = coordinator.submit("a", work.s(names[-1]), job_id=unknown.value.job_id)
    assert again.outcome == "duplicate"
    assert coordinator.wait(again.id, 20).state == "succeeded"
    assert [stamp.name for stamp in own_fleet.stamps(what="begin")] == names
    assert worker.process.poll() is None

    proxy.lose_reply(name_of("job_lose"))
    last = submit(2.0)
    wait_until(lambda: own_fleet.stamps(names[-1], "begin"), 20)
    for child in worker.children():
        child.kill()
    job = coordinator.wait(last, 20)
    assert proxy.lost.is_set()
    assert (job.state, job.losses, len(own_fleet.stamps(names[-1], "begin"))) == ("succeeded", 1, 2)


def test_connections_that_swallow_everything_hold_work_up_no_longer_than_they_last(
    own_fleet: Fleet, proxy: Proxy
) -> None:
    worker = own_fleet.worker(concurrency=2)
    coordinator, work = own_fleet.coordinator, own_fleet.shop.work
    running = coordinator.submit("a", work.s("running", 5)).id
    behind = coordinator.submit("a", work.s("behind")).id
    wait_until(lambda: own_fleet.stamps("running"), 20)
    proxy.swallow()
    pass_time(TTL + 1)
    proxy.heal()
    direct = client_of(own_fleet.server)
    assert direct.wait(behind, 30).state == "succeeded"
    job = direct.job(running)
    direct.store.close()
    assert (job.state, job.attempt) == ("succeeded", 1), own_fleet.logs()[-5000:]
    assert worker.process.poll() is None
