"""Time on a server whose clock is the test's: it goes back, or forth, or nobody takes a step for long."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from coordinator.fleet.nodes import Nodes
from coordinator.store.client import Store
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.model.clock import Clocked, Settings, library
from tests.model.record import BEGINNING

HOUR, TTL, GAP = 3_600_000, 15_000, 2_000


@pytest.fixture
def clocked(redis_server: RedisServer) -> Iterator[Clocked]:
    store = Clocked(Settings(url=redis_server.url(9), prefix=redis_server.fresh_prefix()))
    yield store
    store.forget()
    store.close()


@pytest.fixture
def node(clocked: Clocked) -> Puppet:
    puppet = Puppet(clocked, ttl=TTL)
    puppet.up()
    return puppet


def pass_time(node: Puppet, ms: int, step: int = 500) -> list[str]:
    """Somebody takes a step, and somebody sweeps, each `step` ms; who was lost."""
    lost: list[str] = []
    for _ in range(0, ms, step):
        node.store.jump(step)  # type: ignore[attr-defined]
        lost += node.sweep()[0]
    return lost


def set_back(clocked: Clocked) -> None:
    """And somebody takes a step."""
    clocked.jump(-HOUR)
    clocked.clock()


def state_of(node: Puppet, job_id: str = "j") -> str:
    return node.lanes.job(job_id).state


def test_the_installations_clock_goes_on_where_the_servers_went_back(clocked: Clocked) -> None:
    before = clocked.clock()
    clocked.jump(-HOUR)
    back = clocked.clock()
    assert (back.now, back.uptime, back.wall) == (before.now, before.uptime, before.wall - HOUR)
    clocked.jump(1_000)
    assert (clocked.now(), clocked.clock().wall) == (before.now + 1_000, before.wall - HOUR + 1_000)
    clocked.jump(HOUR)
    assert clocked.now() == before.now + 1_000 + HOUR


def test_a_dead_nodes_job_is_taken_again_in_time_though_the_servers_clock_went_back(
    clocked: Clocked, node: Puppet
) -> None:
    node.submit("a", job_id="j")
    dead = node.must_take()
    set_back(clocked)
    assert pass_time(node, TTL) == ["j"]
    node.up()
    again = node.must_take()
    assert (again.id, again.losses) == ("j", 1)
    assert again.fence > dead.fence
    assert node.locked_by("a") == again.token, "Redis itself keeps the dead one's lock for an hour more"
    assert node.finish(again).state == "succeeded"


def test_a_node_counts_as_dead_in_time_though_the_servers_clock_went_back(clocked: Clocked, node: Puppet) -> None:
    nodes, ttl = Nodes(clocked), int(clocked.settings.node_ttl * 1000)
    clocked.jump(-HOUR)
    assert nodes.is_alive("one")
    for _ in range(ttl // 500):
        clocked.jump(500)
        clocked.clock()
    assert not nodes.is_alive("one")
    assert [found.alive for found in nodes.all()] == [False]


def test_a_lock_in_code_whose_holder_died_is_given_on_though_the_servers_clock_went_back(clocked: Clocked) -> None:
    clocked.step("lock_take", "dead", "k", "queue", "t1", TTL, 10**9)
    set_back(clocked)
    clocked.jump(TTL - 1)
    assert clocked.step("lock_take", "l2", "k", "skip", "t2", TTL, 10**9)[0] == b"skipped"
    clocked.jump(1)
    assert clocked.step("lock_take", "l3", "k", "skip", "t3", TTL, 10**9)[0] == b"started"
    assert clocked.step("lock_release", "l3", "t3") == b"released"


def test_a_retry_is_due_in_time_and_a_named_start_waits_for_its_hour(clocked: Clocked, node: Puppet) -> None:
    named = datetime.fromtimestamp((BEGINNING + 20_000) / 1000, UTC)
    node.submit("b", job_id="named", not_before=named)
    node.submit("a", job_id="j", max_attempts=2)
    node.finish(node.must_take(), "raised", delay=5_000)
    set_back(clocked)
    pass_time(node, 5_000)
    assert (state_of(node), state_of(node, "named")) == ("ready", "scheduled")
    pass_time(node, HOUR, 60_000)
    assert state_of(node, "named") == "scheduled"
    pass_time(node, 15_000)
    assert state_of(node, "named") == "ready"


@pytest.mark.parametrize("forth", [True, False], ids=["the clock went forth", "Redis was away"])
def test_after_a_silence_nobody_is_lost_who_comes_back(clocked: Clocked, node: Puppet, forth: bool) -> None:
    node.submit("a", job_id="j")
    living = node.must_take()
    node.sweep()
    clocked.jump(HOUR if forth else 60_000)
    assert node.sweep() == ([], [])
    assert pass_time(node, GAP) == []
    assert node.renew(living) == [True]
    assert pass_time(node, TTL - 500) == []
    assert node.finish(living).verdict == "accepted"


def test_after_a_silence_the_dead_are_lost_in_the_end(clocked: Clocked, node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.must_take()
    clocked.jump(HOUR)
    node.sweep()
    assert pass_time(node, GAP + TTL) == ["j"]


def test_a_thousand_silences_cost_a_holder_that_comes_back_after_each_nothing(clocked: Clocked, node: Puppet) -> None:
    node.submit("a", job_id="j")
    living = node.must_take()
    for _ in range(100):
        clocked.jump(12_000)
        assert pass_time(node, 3_000) == []
        assert node.renew(living) == [True]


def test_slow_sweeps_put_off_no_loss_where_others_take_steps(clocked: Clocked, node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.must_take()
    lost: list[str] = []
    for number in range(TTL // 500 + 10):
        clocked.jump(500)
        clocked.clock()
        lost += node.sweep()[0] if number % 10 == 9 else []
    assert lost == ["j"]


def test_not_even_a_node_alone_whose_steps_are_all_slow_puts_a_loss_off_for_ever(
    clocked: Clocked, node: Puppet
) -> None:
    node.submit("a", job_id="j")
    node.must_take()
    assert pass_time(node, 3_000 * TTL // 500, 3_000) == ["j"]


def test_a_countdown_and_a_lifetime_are_counted_by_the_server(clocked: Clocked, node: Puppet) -> None:
    """The server is years behind this process."""
    node.submit("a", job_id="j", options={"countdown": 5})
    node.submit("b", job_id="first")
    node.submit("b", job_id="late", options={"expires": 5})
    node.submit("b", job_id="late", options={"expires": 500})
    first = node.must_take()
    clocked.jump(4_999)
    node.sweep()
    assert (state_of(node), state_of(node, "late")) == ("scheduled", "waiting")
    clocked.jump(1)
    node.sweep()
    assert (state_of(node), state_of(node, "late")) == ("ready", "expired")
    node.finish(first)


def test_a_lost_fence_is_never_given_again_by_a_server_whose_clock_is_behind(
    clocked: Clocked, node: Puppet, redis_server: RedisServer
) -> None:
    node.submit("a", job_id="j")
    keys = [clocked.key("fence"), clocked.key("clock")]
    node.finish(node.must_take())
    kept: Any = clocked._client.mget(*keys)
    clocked.jump(2_000)
    lost = int(clocked.step("fence_next"))
    clocked._client.mset(dict(zip(keys, kept, strict=True)))  # a replica has it so
    clocked.jump(-HOUR)
    with redis.Redis.from_url(redis_server.url(9)) as other:
        other.function_delete(library().name)  # a library begins anew on another server
    first = int(clocked.step("fence_next"))
    assert first > lost
    assert int(clocked.step("fence_next")) == first + 1


def test_two_servers_that_begin_from_the_same_replica_give_no_fence_twice(
    clocked: Clocked, redis_server: RedisServer
) -> None:
    """The first of them is lost with all that it has written."""
    with redis.Redis.from_url(redis_server.url(9)) as other:
        clocked.step("fence_next")
        keys = [clocked.key("fence"), clocked.key("clock")]
        kept: Any = clocked._client.mget(*keys)
        fences = []
        for _ in range(3):
            clocked.jump(3_000)
            clocked._client.mset(dict(zip(keys, kept, strict=True)))
            other.function_delete(library().name)
            fences += [int(clocked.step("fence_next")) for _ in range(3)]
    assert fences == sorted(set(fences))


def test_no_fence_goes_back_over_three_starts_that_are_lost_one_after_another(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    """Each kept what was before it; then the append-only file ends where it ended before the first of them."""

    def next_fences() -> list[int]:
        with contextlib.closing(Store(Settings(url=own_redis.url(0), prefix="t"))) as store:
            return [int(store.step("fence_next")) for _ in range(3)]

    fences = next_fences()
    shutil.copytree(tmp_path / "redis", tmp_path / "saved")
    for lost in (False, False, False, True, False):
        own_redis.kill()
        if lost:
            shutil.rmtree(tmp_path / "redis")
            shutil.copytree(tmp_path / "saved", tmp_path / "redis")
        own_redis.start()
        fences += next_fences()
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("told_by", ["a fence of the server between", "a silence"])
def test_a_server_that_becomes_the_master_again_begins_anew(own_redis: RedisServer, told_by: str) -> None:
    store = Store(Settings(url=own_redis.url(0), prefix="t"))
    before = int(store.step("fence_next"))
    assert int(store.step("fence_next")) == before + 1
    store._client.replicaof("127.0.0.1", 1)
    store._client.replicaof("no", "one")
    if told_by == "a silence":
        since = time.monotonic()
        wait_until(lambda: time.monotonic() - since > 0.5)
    else:
        store._client.set(store.key("fence"), before + 5)
    first = int(store.step("fence_next"))
    assert first >= before + 10_000
    assert int(store.step("fence_next")) == first + 1
    store.close()
