"""Redis killed, silent, or losing replies under a working fleet: nothing runs twice, nothing is lost."""

import signal
import time
from collections.abc import Iterator

import pytest

from coordinator import Coordinator, StoreUnavailable
from coordinator.core.store.library import current
from tests.fleet.mishaps import marks
from tests.harness.fleet import Fleet
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

TTL = 3.0
NODE = Node("shop", 2, settings={"lock_ttl": TTL, "node_ttl": 4, "sweep": 0.2, "timeout": 0.5})
OTHER = "one@test"


@pytest.fixture(scope="module")
def proxy(own_redis: RedisServer) -> Iterator[Proxy]:
    """Between the coordinator's clients and its Redis; the broker is reached directly."""
    with Proxy(own_redis.port) as between:
        yield between


@pytest.fixture(scope="module")
def fleet_redis(own_redis: RedisServer) -> RedisServer:
    return own_redis


@pytest.fixture(scope="module")
def environ(proxy: Proxy) -> dict[str, str]:
    return {"COORDINATOR_URL": proxy.url(0)}


def pass_time(seconds: float) -> None:
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, seconds + 5)


def name_of(step: str) -> bytes:
    return f"{step}_{current().digest}".encode()


def test_a_redis_that_was_away_longer_than_a_lease_costs_no_holder_its_job(fleet: Fleet) -> None:
    fleet.worker("two", 2)
    work = fleet.shop.work
    names = [f"{key}{turn}" for key in "abcd" for turn in (1, 2, 3)]
    found = fleet.coordinator.submit_many([(name[0], work.s(name, 15 if name[1] == "1" else 0)) for name in names])
    wait_until(lambda: len(fleet.stamps(what="begin")) == 4)
    fleet.server.kill()
    with pytest.raises(StoreUnavailable):
        fleet.coordinator.job(found[0].id)
    pass_time(TTL + 1)
    fleet.server.start()
    for submission in found:
        job = fleet.coordinator.wait(submission.id, 60)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0), fleet.logs()[-5000:]
    begun = [stamp.name for stamp in fleet.stamps(what="begin")]
    assert sorted(begun) == names
    for key in "abcd":
        assert [name for name in begun if name[0] == key] == [f"{key}{turn}" for turn in (1, 2, 3)]


def test_a_worker_that_stops_at_once_while_redis_is_away_costs_its_jobs_no_loss(fleet: Fleet) -> None:
    """Its supervisor puts them back once Redis answers."""
    worker, coordinator = fleet.worker("first", 2, COORDINATOR_LOCK_TTL="20"), fleet.coordinator
    coordinator.drain(OTHER, why="only the other one is to work")
    job_id = coordinator.submit("a", fleet.shop.held.s("job"), max_losses=0).id
    fleet.begun("job")
    coordinator.undrain(OTHER)
    fleet.server.kill()
    worker.kill(signal.SIGQUIT)
    worker.process.wait(60)
    fleet.server.start()
    wait_until(lambda: len(fleet.stamps("job", "begin")) == 2, what=fleet.logs)
    for _ in range(2):
        fleet.go("job")
    job = coordinator.wait(job_id, 60)
    assert (job.state, job.attempt, job.losses, job.node) == ("succeeded", 1, 0, OTHER)


def test_whatever_reply_is_lost_each_job_runs_once_and_in_order(fleet: Fleet, proxy: Proxy) -> None:
    (worker,) = fleet.workers
    coordinator, work = fleet.coordinator, fleet.shop.work
    names: list[str] = []

    def submit(seconds: float = 0.0) -> str:
        names.append(f"{len(names):02}")
        return coordinator.submit("a", work.s(names[-1], seconds)).id

    coordinator.wait(submit(), 60)
    for step in ("runner_take", "job_finish", "job_finish", "notices_sent", "runner_take"):
        proxy.lose_reply(name_of(step))
        wait_until(lambda: coordinator.wait(submit(), 60).over and proxy.lost.is_set(), what=step)
    for step in ("lease_renew", "sweep", "node_beat"):
        job_id = submit(2.0)
        proxy.lose_reply(name_of(step))
        coordinator.wait(job_id, 60)
        assert proxy.lost.is_set(), step

    proxy.lose_reply(name_of("job_submit"))
    with pytest.raises(StoreUnavailable) as unknown:
        submit()
    assert unknown.value.job_id
    again = coordinator.submit("a", work.s(names[-1]), job_id=unknown.value.job_id)
    assert again.outcome == "duplicate"
    assert coordinator.wait(again.id, 60).state == "succeeded"
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == names
    assert worker.process.poll() is None

    proxy.lose_reply(name_of("job_lose"))
    last = submit(2.0)
    wait_until(lambda: fleet.stamps(names[-1], "begin"))
    for child in worker.children():
        child.kill()
    job = coordinator.wait(last, 60)
    assert proxy.lost.is_set()
    assert (job.state, job.losses, len(fleet.stamps(names[-1], "begin"))) == ("succeeded", 1, 2)


def test_connections_that_swallow_everything_hold_work_up_no_longer_than_they_last(fleet: Fleet, proxy: Proxy) -> None:
    (worker,) = fleet.workers
    coordinator, work = fleet.coordinator, fleet.shop.work
    running = coordinator.submit("a", work.s("running", 9)).id
    behind = coordinator.submit("a", work.s("behind")).id
    wait_until(lambda: fleet.stamps("running"))
    proxy.swallow()
    pass_time(TTL + 1)
    proxy.heal()
    direct = Coordinator(url=fleet.server.url(0), prefix=fleet.prefix)  # past the proxy
    assert direct.wait(behind, 60).state == "succeeded"
    job = direct.job(running)
    direct.store.close()
    assert (job.state, job.attempt) == ("succeeded", 1), fleet.logs()[-5000:]
    coordinator.store.close()  # what it was connected to swallows everything still
    assert worker.process.poll() is None


def test_a_wait_for_an_event_is_written_once_and_outlives_a_restart_of_redis(fleet: Fleet, proxy: Proxy) -> None:
    coordinator, ask = fleet.coordinator, fleet.shop.ask
    proxy.lose_reply(name_of("job_finish"))
    waiting = [coordinator.submit(name, ask.s(name)) for name in ("first", "second")]
    wait_until(lambda: all(one.state == "parked" for one in waiting) and proxy.lost.is_set(), what=fleet.logs)
    fleet.server.kill()
    fleet.server.start()
    wait_until(lambda: fleet.nodes() == [OTHER], what=fleet.logs)
    coordinator.store.close()
    assert coordinator.event("first").waiting == 1
    proxy.lose_reply(name_of("event_set"))
    with pytest.raises(StoreUnavailable):
        coordinator.event("first").set(1)
    assert not coordinator.event("first").set(1)
    coordinator.event("second").set(2)
    assert [coordinator.wait(one.id, 60).result for one in waiting] == [1, 2]
    assert sorted(marks(fleet)) == ["first begin", "first got 1", "second begin", "second got 2"]
    assert [coordinator.job(one.id).attempt for one in waiting] == [1, 1]


def test_what_is_collected_outlives_a_restart_of_redis(fleet: Fleet) -> None:
    sorter = fleet.coordinator.sorter("orders", idle_timeout=8, max_wait=12)
    for order in "ca":
        sorter.add(order, "k", fleet.shop.work.s(order))
    before = fleet.coordinator.sorters()
    fleet.server.kill()
    fleet.server.start()
    assert fleet.coordinator.sorters() == before
    assert sorter.orders() == ("orders/a", "orders/c")
    try:
        sorter.add("b", "k", fleet.shop.work.s("b"))
    except StoreUnavailable:  # its connection was cut: it is safe to ask again
        sorter.add("b", "k", fleet.shop.work.s("b"))
    assert fleet.coordinator.why("orders/b").codes == ["later.sorter"]
    wait_until(lambda: fleet.coordinator.counts()["succeeded"] == 3, 60, fleet.logs)
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == ["a", "b", "c"]
