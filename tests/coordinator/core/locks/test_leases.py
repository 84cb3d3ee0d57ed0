"""Leases of locks in plain code when Redis, their holder or a waiter stands still."""

import threading
import time
from subprocess import PIPE

import pytest

from coordinator import Coordinator, LeaseLost, StoreUnavailable
from tests.coordinator.conftest import ClientAt
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start

FORKS = """
import os, sys, time
from coordinator import Coordinator
client = Coordinator(url=sys.argv[1], prefix=sys.argv[2])
with client.lock("parents", ttl=1):
    if child := os.fork():
        print(child, flush=True)
        time.sleep(600)
    with client.lock("childs", ttl=10):
        print("held", flush=True)
        sys.stdin.read()
"""


def waiter(client: Coordinator, name: str) -> str:
    """A waiter in line, whose process asked once and is dead."""
    job_id = f"lock-{name}"
    reply = client.store.step("lock_take", job_id, "ledger", "queue", name, 600_000, 10**9, "")
    assert reply[0] == b"queued"
    return job_id


def fall_silent(client: Coordinator, *job_ids: str) -> None:
    for job_id in job_ids:
        client.store._client.hset(client.store.key("job", job_id), "seen", 1)


def test_a_lease_is_lost_at_its_own_deadline_however_long_a_renewal_hangs(
    own_redis: RedisServer, client_at: ClientAt
) -> None:
    client = client_at(own_redis.url(0), timeout=30)
    locks = [client.lock(f"l{number}", ttl=1.5) for number in range(4)]
    leases = [lock.__enter__() for lock in locks]
    began = time.monotonic()
    own_redis.pause()
    assert all(lease.lost.wait(60) for lease in leases)
    assert time.monotonic() - began < 20
    own_redis.resume()
    for lease, lock in zip(leases, locks, strict=True):
        with pytest.raises(LeaseLost):
            lease.check()
        lock.__exit__(None, None, None)  # nobody else wanted it


def test_a_waiter_waits_on_while_redis_is_started_again(own_redis: RedisServer, client_at: ClientAt) -> None:
    client = client_at(own_redis.url(0), timeout=0.5)
    held = client.lock("ledger", ttl=60)
    held.__enter__()
    fences: list[int] = []

    def wait() -> None:
        with client.lock("ledger", blocking_timeout=60) as lease:
            fences.append(lease.fence)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: client.lane("ledger").length == 2)
    own_redis.kill()
    with pytest.raises(StoreUnavailable):
        client.lane("ledger")
    own_redis.start()
    assert client.lane("ledger").length == 2
    held.__exit__(None, None, None)
    thread.join(60)
    assert len(fences) == 1


def test_a_waiter_whose_place_a_redis_lost_stands_in_line_anew(coordinator: Coordinator) -> None:
    store, fences = coordinator.store, []

    def wait() -> None:
        with coordinator.lock("ledger", blocking_timeout=60) as lease:
            fences.append(lease.fence)

    thread = threading.Thread(target=wait)
    with coordinator.lock("ledger"):
        thread.start()
        wait_until(lambda: coordinator.lane("ledger").length == 2)
        lost = coordinator.lane("ledger").jobs[1]
        store._client.zrem(store.key("line", "ledger"), lost)
        store._client.delete(store.key("job", lost))
        wait_until(lambda: coordinator.lane("ledger").length == 2)
        assert coordinator.lane("ledger").jobs[1] != lost
    thread.join(60)
    assert len(fences) == 1


def test_a_forked_child_does_not_renew_what_its_killed_parent_held(
    coordinator: Coordinator, redis_server: RedisServer, prefix: str
) -> None:
    argv = ["-c", FORKS, redis_server.url(0), prefix]
    with start(argv, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert "held\n" in [process.stdout.readline(), process.stdout.readline()]
        process.kill()
        with coordinator.lock("parents", blocking_timeout=60) as lease:
            assert coordinator.lane("childs").state == "running"
            process.stdin.close()  # from here the child ends
            wait_until(lambda: coordinator.lane("childs").state == "empty")
            lease.check()


def test_dead_waiters_are_passed_over_at_once(coordinator: Coordinator) -> None:
    granted = threading.Event()

    def wait() -> None:
        with coordinator.lock("ledger", blocking_timeout=60):
            granted.set()

    with coordinator.lock("ledger"):
        dead = [waiter(coordinator, f"dead-{number}") for number in range(5)]
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: coordinator.lane("ledger").length == 7)
        fall_silent(coordinator, *dead)
    assert granted.wait(60), "each of the dead would have kept it for 600 s"
    thread.join()
    assert {coordinator.job(one).state for one in dead} == {"failed"}


def test_a_waiter_that_died_just_now_costs_little(coordinator: Coordinator) -> None:
    with coordinator.lock("ledger", ttl=600):
        dead = waiter(coordinator, "dead")
    assert coordinator.lane("ledger").jobs == (dead,)
    assert coordinator.store._client.pttl(coordinator.store.key("lock", "ledger")) <= 3000
    with coordinator.lock("ledger", blocking_timeout=60):
        pass


def test_time_in_which_everybody_was_silent_takes_nobody_for_dead(coordinator: Coordinator) -> None:
    store = coordinator.store
    with coordinator.lock("ledger"):
        silent = waiter(coordinator, "silent")
        before = int(store._client.time()[0]) * 1000 - 60_000
        store._client.set(store.key("clock"), f"{before} 0 {before} 0 2000")
        store._client.hset(store.key("job", silent), "seen", before)
    assert coordinator.job(silent).state == "running"
    assert store.step("lock_wait", silent)[0] == b"running"
    assert store._client.pttl(store.key("lock", "ledger")) > 500_000
    store.step("lock_release", silent, "silent")


def test_a_lock_ends_after_its_lifetime_though_a_thread_renews_it(
    redis_server: RedisServer, client_at: ClientAt, coordinator: Coordinator
) -> None:
    hung = client_at(redis_server.url(0), max_lifetime=1.0)
    held = hung.lock("ledger", ttl=0.6)
    lease = held.__enter__()
    with coordinator.lock("other"), coordinator.lock("another"):
        pass
    assert lease.lost.wait(60)
    assert coordinator.job(lease.job_id).state == "expired"
    with coordinator.lock("ledger"), pytest.raises(LeaseLost):
        held.__exit__(None, None, None)


def test_the_renewer_goes_on_after_a_refusal(own_redis: RedisServer, client_at: ClientAt) -> None:
    client = client_at(own_redis.url(0))
    redis = client.store._client
    with client.lock("ledger", ttl=9) as lease:
        redis.execute_command("REPLICAOF", "127.0.0.1", 1)  # whose replicas refuse all writes
        key = client.store.key("lock", "ledger")
        wait_until(lambda: 0 < redis.pttl(key) < 5500)
        redis.execute_command("REPLICAOF", "NO", "ONE")
        wait_until(lambda: redis.pttl(key) > 7000)
        lease.check()
