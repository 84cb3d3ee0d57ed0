"""Locks in plain code: one holder, in order, and none that stays when its process is gone."""

import contextvars
import threading
import time
from subprocess import PIPE

import pytest

from coordinator import Coordinator, InvalidJob, LeaseLost, Locked, StoreUnavailable
from coordinator.core.jobs.current import CurrentJob, working
from tests.coordinator.conftest import ClientAt
from tests.harness.hand_node import Puppet, locked_by
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import Started, at_once, start

IMPORTS = "from coordinator import Coordinator"
MANY = """
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
redis, name = client.store._client, sys.argv[2] + ".counter"
for _ in range(5):
    with client.lock("counter", blocking_timeout=60) as lease:
        assert redis.incr(name + ".inside") == 1
        value = int(redis.get(name) or 0)
        redis.rpush(name + ".fences", lease.fence)
        redis.set(name, value + 1)
        assert redis.decr(name + ".inside") == 0
"""

HOLDER = """
import sys, time
from coordinator import Coordinator
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
with client.lock(sys.argv[3], ttl=float(sys.argv[4]), blocking_timeout=float(sys.argv[5])):
    print("held", flush=True)
    time.sleep(600)
"""


def holder(server: RedisServer, prefix: str, name: str, ttl: float, wait: float = 0) -> Started:
    return start(["-c", HOLDER, server.url(0), prefix, name, str(ttl), str(wait)], stdout=PIPE)


def fail_elsewhere(client: Coordinator, name: str, wait: float) -> Locked:
    """The error in another thread, whose code does not hold what the caller holds."""

    def attempt() -> Locked:
        with pytest.raises(Locked) as error, client.lock(name, blocking_timeout=wait):
            pytest.fail("two hold it")
        return error.value

    return contextvars.Context().run(attempt)


def lapse(client: Coordinator, name: str) -> None:
    """The lease of the lock's holder ends as if its ttl had passed."""
    store = client.store
    (job_id,) = client.lane(name, 1).jobs
    store._client.zadd(store.key("locks"), {job_id: 1}, xx=True)
    store._client.delete(store.key("lock", name))


def test_a_lock_is_the_key_lock_name_with_a_ttl_and_leaves_nothing(coordinator: Coordinator) -> None:
    store = coordinator.store
    with coordinator.lock("ledger", ttl=7) as lease:
        key = f"{{{coordinator.settings.prefix}}}:lock:ledger"
        assert locked_by(coordinator.store, "ledger") == lease.token
        assert 6000 < store._client.pttl(key) <= 7000
        lease.check()
        assert coordinator.lane("ledger").state == "running"
    assert store._client.exists(key, store.key("line", "ledger")) == 0


def test_twenty_processes_hold_it_one_at_a_time_with_growing_fences(coordinator: Coordinator, prefix: str) -> None:
    assert start(["-c", at_once(20, IMPORTS, MANY), coordinator.settings.url, prefix]).wait(100) == 0
    client = coordinator.store._client
    assert client.get(f"{prefix}.counter") == b"100"
    fences = [int(fence) for fence in client.lrange(f"{prefix}.counter.fences", 0, -1)]
    assert fences == sorted(set(fences))


def test_who_does_not_wait_is_told_who_holds_it(coordinator: Coordinator, other: Coordinator) -> None:
    with coordinator.lock("ledger") as lease:
        for wait in (0, 0.1):
            error = fail_elsewhere(other, "ledger", wait)
            assert error.key == "ledger"
            assert error.holder == lease.job_id
        assert coordinator.lane("ledger").length == 1
    with other.lock("ledger"):
        pass


def test_who_meets_a_paused_lane_is_told_so(coordinator: Coordinator, other: Coordinator) -> None:
    coordinator.pause("ledger", why="upgrade", by="ann")
    for wait in (0, 0.1):
        error = fail_elsewhere(other, "ledger", wait)
        assert (error.holder, str(error)) == (None, "'ledger' is paused by ann: upgrade")


def test_waiters_go_in_the_order_of_their_arrival_jobs_included(coordinator: Coordinator, other: Coordinator) -> None:
    node = Puppet(coordinator.store)
    node.up()
    order: list[str] = []

    def take(name: str, client: Coordinator) -> None:
        with client.lock("a", blocking_timeout=30):
            order.append(name)

    threads = [threading.Thread(target=take, args=(name, other)) for name in ("second", "fourth")]
    with coordinator.lock("a"):
        threads[0].start()
        wait_until(lambda: coordinator.lane("a").length == 2)
        node.submit("a", job_id="third")
        threads[1].start()
        wait_until(lambda: coordinator.lane("a").length == 4)
        order.append("first")
        assert node.take() is None
    wait_until(lambda: coordinator.job("third").state == "ready")
    taken = node.must_take()
    order.append(taken.id)
    node.finish(taken)
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second", "third", "fourth"]


def test_inside_a_job_of_that_key_the_lease_is_the_jobs_own(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    node.up()
    node.submit(["a", "b"], job_id="j")
    taken = node.must_take()
    mark = working.set(CurrentJob("j", ("a", "b"), taken.token, taken.fence, 1, node.lanes))
    with coordinator.lock("b") as lease:
        assert (lease.job_id, lease.token, lease.fence) == ("j", taken.token, taken.fence)
        lease.check()
        node.lapse("j")
        node.sweep()
        again = node.must_take()
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert (lost.value.key, lost.value.fence) == ("b", taken.fence)
    with coordinator.lock("c") as free:
        assert free.job_id != "j"
    working.reset(mark)
    node.finish(again)


def test_a_late_release_does_not_free_the_next_holder(coordinator: Coordinator, other: Coordinator) -> None:
    late = coordinator.lock("ledger", ttl=600)
    first = late.__enter__()
    lapse(coordinator, "ledger")
    with other.lock("ledger") as second:
        assert second.fence > first.fence
        with pytest.raises(LeaseLost):
            first.check()
        with pytest.raises(LeaseLost) as lost:
            late.__exit__(None, None, None)
        assert (lost.value.key, lost.value.fence) == ("ledger", first.fence)
        second.check()
        assert locked_by(other.store, "ledger") == second.token


def test_a_lease_that_lapsed_is_still_its_holders_while_nobody_wants_it(coordinator: Coordinator) -> None:
    with coordinator.lock("ledger", ttl=600) as lease:
        lapse(coordinator, "ledger")
        lease.check()
        assert coordinator.store.step("lease_renew", 600000, lease.job_id, lease.token) == [lease.token.encode()]
        assert locked_by(coordinator.store, "ledger") == lease.token


def test_leases_are_renewed_while_their_holder_works(coordinator: Coordinator, other: Coordinator) -> None:
    with coordinator.lock("a", ttl=3) as one, coordinator.lock("b", ttl=600) as two:
        until = time.monotonic() + 6.5
        fail_elsewhere(other, "a", 6.5)
        assert time.monotonic() >= until
        one.check()
        two.check()


@pytest.mark.parametrize("wait", [0, 60])
def test_a_holder_that_is_killed_frees_it_with_its_lease_though_no_node_lives(
    coordinator: Coordinator, redis_server: RedisServer, prefix: str, wait: int
) -> None:
    with holder(redis_server, prefix, "ledger", 4) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        process.kill()
    if wait:
        with coordinator.lock("ledger", blocking_timeout=wait):
            return

    def taken() -> bool:
        try:
            with coordinator.lock("ledger"):
                return True
        except Locked:
            return False

    assert not taken()
    wait_until(taken)


def test_a_waiter_that_is_killed_costs_the_next_one_its_lease_at_most(
    coordinator: Coordinator, redis_server: RedisServer, prefix: str
) -> None:
    with coordinator.lock("ledger"):
        process = holder(redis_server, prefix, "ledger", 0.8, wait=60)
        wait_until(lambda: coordinator.lane("ledger").length == 2)
        process.kill()
        process.communicate()
    with coordinator.lock("ledger", blocking_timeout=None) as lease:
        lease.check()


def test_an_operator_ends_a_lock_and_its_holder_is_told(coordinator: Coordinator, other: Coordinator) -> None:
    held = coordinator.lock("ledger")
    assert other.cancel(held.__enter__().job_id, why="stuck") == "cancelled"
    with other.lock("ledger"), pytest.raises(LeaseLost):
        held.__exit__(None, None, None)


def test_an_error_inside_frees_the_lock_and_is_the_one_that_is_seen(coordinator: Coordinator) -> None:
    with pytest.raises(KeyError, match="mine"), coordinator.lock("ledger"):
        raise KeyError("mine")
    with coordinator.lock("ledger"):
        pass


@pytest.mark.parametrize(("name", "ttl", "wait"), [("", 1, 0), ("a\n", 1, 0), ("a", 0.1, 0), ("a", 1, -1)])
def test_what_cannot_be_a_lock_is_refused(coordinator: Coordinator, name: str, ttl: float, wait: float) -> None:
    with pytest.raises(InvalidJob), coordinator.lock(name, ttl, wait):
        pytest.fail("it was taken")


@pytest.mark.parametrize("script", ["job_submit", "lock_release"])
def test_a_lost_reply_leaves_neither_two_holders_nor_a_lock_behind(
    own_redis: RedisServer, client_at: ClientAt, script: str
) -> None:
    with Proxy(own_redis.port) as proxy:
        client = client_at(proxy.url(), timeout=0.5)
        with client.lock("warm-up"):
            pass
        if script == "job_submit":
            proxy.lose_reply(b"skip")
        with client.lock("ledger") as lease:
            lease.check()
            if script == "lock_release":
                proxy.lose_reply(lease.job_id.encode())
        assert proxy.lost.is_set()
        with client.lock("ledger"):
            pass


def test_a_holder_that_cannot_reach_redis_knows_when_its_lease_is_over(
    own_redis: RedisServer, client_at: ClientAt
) -> None:
    with Proxy(own_redis.port) as proxy:
        client = client_at(proxy.url(), timeout=1)
        held = client.lock("ledger", ttl=2.0)
        lease = held.__enter__()
        proxy.cut()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            lease.check()
        assert lease.lost.wait(60)
        assert 1 < time.monotonic() - began < 20
        with pytest.raises(LeaseLost):
            lease.check()
        with pytest.raises(LeaseLost):
            held.__exit__(None, None, None)


def test_work_that_is_done_does_not_fail_because_its_lock_could_not_be_released(
    own_redis: RedisServer, client_at: ClientAt, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy(own_redis.port) as proxy:
        client = client_at(proxy.url(), timeout=1)
        with client.lock("ledger", ttl=30):
            proxy.cut()
        assert "cannot be released, and ends when its lease runs out" in caplog.text
