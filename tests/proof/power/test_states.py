"""Two looks at the keys of a real server."""

import time

import redis

from proof.power.states import differing, look, same
from tests.harness.redis import RedisServer


def test_what_one_key_holds_or_when_it_ends_makes_another_state(redis_server: RedisServer, prefix: str) -> None:
    now = round(time.time() * 1000)
    with redis.Redis(port=redis_server.port, db=11) as client:
        client.flushdb()
        client.hset(prefix, mapping={"a": "1", "b": "2"})
        client.sadd(f"{prefix}-set", *range(100))
        first = look(client)
        assert same(first, look(client), now)
        client.hset(prefix, "b", "3")
        client.expire(f"{prefix}-set", 1000)
        assert differing(first, look(client), now) == [prefix, f"{prefix}-set"]
        client.flushdb()


def test_a_key_that_has_ended_may_be_there_or_not(redis_server: RedisServer, prefix: str) -> None:
    with redis.Redis(port=redis_server.port, db=11) as client:
        client.flushdb()
        client.set(prefix, "short", px=60_000)
        first = look(client)
        client.flushdb()
        ends = first[prefix].ends
        assert same(first, {}, ends)
        assert differing(first, {}, ends - 1) == [prefix]
