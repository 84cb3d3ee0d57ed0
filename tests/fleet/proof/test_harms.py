"""Harms of the nemesis do what they say, on real servers: one that does nothing shows nothing."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from proof import harms
from proof import world as worlds
from proof.harms import (
    at_work,
    fail_over,
    kill_a_pool_process,
    kill_another_primary_of_a_cluster,
    leave_an_old_master_serving,
    miss_the_replicas_of_redis,
    set_the_clock_of_a_node_or_client,
    stop_a_pool_process,
)
from proof.history import History, Run
from proof.steps.recording import recorded
from proof.world import World
from tests.harness.cluster import Cluster
from tests.harness.sentinel import Sentinels
from tests.harness.waiting import wait_until

CHANCE = Random(1)


class Chosen(Random):
    """Chooses what stands at this place."""

    def __init__(self, place: int) -> None:
        super().__init__(1)
        self._place = place

    def choice(self, some: Any) -> Any:
        return some[self._place]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Any]:
    with Sentinels(tmp_path, proxied=True) as sentinels:
        yield SimpleNamespace(sentinels=sentinels, several=sentinels, store=sentinels.master())


def test_an_old_master_takes_writes_beside_the_new_one_and_loses_them(world: Any) -> None:
    harm = leave_an_old_master_serving(world, CHANCE)
    next(harm)
    old, new = world.store, world.sentinels.master()
    with old.client() as left, new.client() as right:
        assert old is not new
        for client, name in ((left, "lost"), (right, "kept")):
            assert client.set(name, 1)
        next(harm)
    with old.client() as client:
        assert (client.keys(), world.sentinels.role(old)) == (["kept"], "slave")


def test_a_redis_that_misses_its_replicas_refuses_writes_until_it_sees_them(world: Any) -> None:
    harm = miss_the_replicas_of_redis(world, CHANCE)
    next(harm)
    with world.store.client() as client:
        with pytest.raises(redis.ResponseError, match="good replicas"):
            client.set("key", 1)
        next(harm)
        assert client.set("key", 1)


def test_a_node_with_threads_dies_or_stands_still_with_the_process_of_one_of_its_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "POOLS", {"threads": 2})
    monkeypatch.setattr(worlds, "NODES", 1)
    with World(tmp_path, 1, 0, 0) as world:
        world.has |= {"pools"}
        for job in "ab":
            world.coordinator.submit(job, world.shop.work.s(300), job_id=job)

        def runs() -> list[Run]:
            return History.from_lines(world.witness.lines(), {}).runs

        world.refill()
        wait_until(lambda: len(runs()) == 2)
        assert (len({run.begun.process for run in runs()}), len(at_work(world))) == (2, 1)
        kill = kill_a_pool_process(world, Random(1))
        assert next(kill) == {"victims": [], "nodes": ["n1@test"], "gone": True}
        next(kill, None)

        wait_until(lambda: len(runs()) == 4)
        assert {run.job for run in runs()[2:]} == {"a", "b"}
        (main,) = at_work(world)
        stop = stop_a_pool_process(world, CHANCE)
        assert next(stop) == {"victims": [main.pid], "nodes": ["n2@test"], "gone": False}
        next(stop, None)


def test_a_node_whose_clock_is_wrong_and_jumps_does_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "OFFSETS", (-3600,))
    monkeypatch.setattr(harms, "OFFSETS", (7200,))
    with recorded(), World(tmp_path, 1, 0, 0) as world:
        world.has |= {"clocks"}
        node = world.join(ready=True)

        def its_clock() -> timedelta:
            """How far ahead the last line of its log is."""
            last = re.findall(r"^\[([\d-]+ [\d:]+),", node.log.read_text(), re.M)[-1]
            return datetime.fromisoformat(last) - datetime.now()

        assert -timedelta(hours=1.5) < its_clock() < -timedelta(hours=0.5)
        next(set_the_clock_of_a_node_or_client(world, CHANCE))

        def jumped() -> bool:
            job = world.coordinator.submit("k", world.shop.work.s(0.01)).id
            assert world.coordinator.wait(job, 60).state == "succeeded"
            return its_clock() > timedelta(hours=1.5)

        wait_until(jumped)


def test_a_primary_of_a_cluster_fails_over_and_back_and_its_logs_tell_when(tmp_path: Path) -> None:
    world = World(tmp_path, 1, 0, 0)
    world.has = {"cluster", "redis"}
    with world:
        assert world.cluster
        first, since = world.store, time.time()
        for way in (0, 1):  # it hangs, or is killed
            harm = fail_over(world, Chosen(way))
            former = world.store
            next(harm)
            assert world.store is not former
            next(harm)
            assert world.cluster.replica() is former
        assert world.store is first
        assert [since < at / 1e6 < time.time() for at in world.failovers()] == [True, True]


def test_a_cluster_without_another_primary_serves_nobody_until_it_is_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, "proof") as cluster, cluster.master().client() as client:
        world: Any = SimpleNamespace(cluster=cluster)
        harm = kill_another_primary_of_a_cluster(world, Chosen(0))
        next(harm)

        def is_down() -> bool:
            with suppress(redis.exceptions.ClusterDownError):
                client.set("{proof}:key", 1)
                return False
            return True

        wait_until(is_down)
        next(harm, None)
        assert client.set("{proof}:key", 1)
