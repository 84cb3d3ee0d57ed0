"""The nemesis' rival for the wake-ups of a fleet."""

from random import Random
from typing import Any

import pytest

from proof.harms import delay_and_double_wake_ups, lose_wake_ups
from proof.world import World
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

CHANCE = Random(1)


class Waking(World):
    """A world of one list."""

    def __init__(self, store: RedisServer) -> None:
        self._store, self.sentinels, self.cluster = store, None, None

    def wakes(self) -> list[str]:
        return ["wakes:a:one"]


@pytest.mark.parametrize(("harm", "left"), [(lose_wake_ups, []), (delay_and_double_wake_ups, ["1-1", "1-1"])])
def test_a_rival_takes_wake_ups_and_loses_them_or_brings_each_twice(
    harm: Any, left: list[str], own_redis: RedisServer
) -> None:
    with own_redis.client() as client:
        harming = harm(Waking(own_redis), CHANCE)
        next(harming)
        wait_until(lambda: client.info("clients")["blocked_clients"])
        client.rpush("wakes:a:one", "1-1")
        assert not client.exists("wakes:a:one")
        assert next(harming, None) is None
        assert client.lrange("wakes:a:one", 0, -1) == left
        assert client.ttl("wakes:a:one") != -1, "it ends by itself"
