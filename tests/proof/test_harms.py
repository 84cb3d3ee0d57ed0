"""Harms of the nemesis do what they say, on real servers: one that does nothing shows nothing."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from proof.harms import leave_an_old_master_serving, miss_the_replicas_of_redis
from tests.harness.sentinel import Sentinels

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
