"""Harms of the nemesis do what they say, on real servers: one that does nothing shows nothing."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from proof.harms import (
    delay_and_double_wake_ups,
    leave_an_old_master_serving,
    lose_wake_ups,
    miss_the_replicas_of_redis,
)
from proof.world import World
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels
from tests.harness.waiting import wait_until

CHANCE = Random(1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Any]:
    with Sentinels(tmp_path, proxied=True) as sentinels:
        yield SimpleNamespace(sentinels=sentinels, store=sentinels.master())


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


class Waking(World):
    """A world of one list."""

    def __init__(self, store: RedisServer) -> None:
        self._store, self.sentinels = store, None

    def wakes(self) -> list[str]:
        return ["wakes:a:one"]


@pytest.mark.parametrize(("harm", "left"), [(lose_wake_ups, []), (delay_and_double_wake_ups, ["1-1", "1-1"])])
def test_a_rival_takes_wake_ups_and_loses_them_or_brings_each_twice(
    harm: Any, left: list[str], own_redis: RedisServer
) -> None:
    with own_redis.client() as client:
        harming = harm(Waking(own_redis), CHANCE)
        next(harming)
        wait_until(lambda: client.info("clients")["blocked_clients"], 10)
        client.rpush("wakes:a:one", "1-1")
        assert not client.exists("wakes:a:one")
        assert next(harming, None) is None
        assert client.lrange("wakes:a:one", 0, -1) == left
        assert client.ttl("wakes:a:one") != -1, "it ends by itself"
