"""Time on a server whose clock is the test's: it goes back, or forth, or nobody takes a step for long."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.core.fleet.nodes import Nodes
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.store.client import Store
from proof.model.clock import Clocked, Settings
from tests.harness.hand_node import LIFE, Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

HOUR, TTL, GAP = 3_600_000, 15_000, 2_000


@pytest.fixture
def clocked(redis_server: RedisServer) -> Iterator[Clocked]:
    store = Clocked(redis_server.url(9))
    yield store
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


def test_the_installations_clock_goes_on_where_the_servers_went_back(clocked: Clocked) -> None:
    before = clocked.clock()
    clocked.jump(-HOUR)
    back = clocked.clock()
    assert (back.now, back.uptime, back.wall) == (before.now, before.uptime, before.wall - HOUR)
    clocked.jump(1_000)
    assert (clocked.now(), clocked.clock().wall) == (before.now + 1_000, before.wall - HOUR + 1_000)
    clocked.jump(HOUR)
    assert clocked.now() == before.now + 1_000 + HOUR


def test_a_node_counts_as_dead_in_time_though_the_servers_clock_went_back(clocked: Clocked, node: Puppet) -> None:
    nodes = Nodes(clocked)
    clocked.jump(-HOUR)
    assert nodes.living()
    for _ in range(LIFE // 500):
        clocked.jump(500)
        clocked.clock()
    assert [found.alive for found in nodes.all()] == [False]


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


def test_slow_sweeps_put_off_no_loss_where_others_take_steps(clocked: Clocked, node: Puppet) -> None:
    node.submit("a", job_id="j")
    node.must_take()
    lost: list[str] = []
    for number in range(TTL // 500 + 10):
        clocked.jump(500)
        clocked.clock()
        lost += node.sweep()[0] if number % 10 == 9 else []
    assert lost == ["j"]


def starts(node: Puppet, ms: int) -> int:
    """How many may begin once so much time has passed."""
    pass_time(node, ms)
    node.up()  # it sends no heartbeat
    return len(node.take_all())


@pytest.mark.parametrize("by", [HOUR, 24 * HOUR, GAP + 1, -HOUR, -24 * HOUR])
def test_a_rate_starts_no_burst_and_keeps_on_where_the_servers_clock_jumps(
    clocked: Clocked, node: Puppet, by: int
) -> None:
    QuotaClient(clocked).declare("q", None, "1/s", 5)
    for number in range(20):
        node.submit([], job_id=str(number), uses="q")
    assert starts(node, 0) == 0, "its bucket begins empty"
    assert [starts(node, 1_000) for _ in range(3)] == [1, 1, 1]
    clocked.jump(by)
    assert starts(node, 0) == 0
    assert starts(node, GAP) <= 2, "after a leap the clock of rates and leases stands still for so long"
    assert [starts(node, 1_000) for _ in range(3)] == [1, 1, 1]


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
