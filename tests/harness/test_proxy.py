"""The tests' own proxy does what it says, on a real Redis."""

import time
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_until


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(proxy.url(7), socket_timeout=0.5, retry=Retry(NoBackoff(), 0)) as through:
        yield through


def test_it_forwards(client: redis.Redis) -> None:
    assert client.echo("x" * 200_000) == b"x" * 200_000


def test_a_lost_reply_is_lost_after_the_server_did_what_was_asked(proxy: Proxy, client: redis.Redis) -> None:
    client.delete("lost")
    proxy.lose_reply(containing=b"lost")
    with pytest.raises(redis.ConnectionError):
        client.incr("lost")
    assert proxy.lost.is_set()
    assert client.get("lost") == b"1"


def test_a_swallowed_connection_stays_dead_and_a_new_one_works_after_healing(proxy: Proxy, client: redis.Redis) -> None:
    client.set("swallowed", "before")
    proxy.swallow()
    with pytest.raises(redis.TimeoutError):
        client.set("swallowed", "during")
    with pytest.raises(redis.TimeoutError):
        client.ping()
    proxy.heal()
    assert client.get("swallowed") == b"before"


def test_a_cut_closes_old_and_new_connections_until_healed(proxy: Proxy, client: redis.Redis) -> None:
    client.ping()
    proxy.cut()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    proxy.heal()
    assert client.ping()


def test_what_is_sent_while_it_is_held_comes_late(proxy: Proxy, client: redis.Redis) -> None:
    client.delete("held")
    proxy.hold()
    with pytest.raises(redis.TimeoutError):
        client.incr("held")
    proxy.heal()
    wait_until(lambda: client.get("held") == b"1", 5)


def test_what_was_asked_is_done_at_once_and_its_reply_comes_late(proxy: Proxy, client: redis.Redis) -> None:
    client.delete("late")
    proxy.delay = 0.2
    began = time.monotonic()
    assert client.incr("late") == 1
    assert time.monotonic() - began > 0.2
    proxy.delay = 0.6
    with pytest.raises(redis.TimeoutError):
        client.incr("late")
    proxy.delay = 0
    assert client.get("late") == b"2"
