"""Readings that run side by side ask Redis at the same time, and each gets its own answers."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from coordinator.core.store.bundle import Bundle, side_by_side
from coordinator.core.store.client import Store, until
from coordinator.core.store.connections import Connections
from coordinator.errors import StoreUnavailable
from tests.harness.redis import RedisServer


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commands each round trip had."""
    sent, replies = list[int](), Connections.replies

    def counted(connections: Connections, commands: Any, atomic: bool = False) -> list[object]:
        asked = [*commands]
        sent.append(len(asked))
        return replies(connections, asked, atomic)

    monkeypatch.setattr(Connections, "replies", counted)
    return sent


def asking(times: int, word: str) -> Callable[[Store], Sequence[bytes]]:
    """A reading that asks so many times, one request behind the other."""
    return lambda store: [store.read("ECHO", f"{word}{number}") for number in range(times)]


def test_readings_take_as_many_round_trips_as_the_longest_and_each_has_its_answers(
    store: Store, trips: list[int]
) -> None:
    found = side_by_side(store, [asking(1, "a"), asking(3, "b"), asking(2, "c")])
    assert found == [b"a0", b"b0", b"b1", b"b2", b"c0", b"c1"]
    assert trips == [3, 2, 1]


def test_a_reading_may_run_a_bundle_of_its_own(store: Store, trips: list[int]) -> None:
    def inner(own: Store) -> Sequence[bytes]:
        return [own.read("ECHO", "first"), *side_by_side(own, [asking(2, "x"), asking(1, "y")])]

    assert side_by_side(store, [inner, asking(2, "z")]) == [b"first", b"x0", b"x1", b"y0", b"z0", b"z1"]
    assert trips == [2, 3, 1]


def test_many_commands_of_one_reading_stay_together_and_none_are_no_round_trip(store: Store, trips: list[int]) -> None:
    bundle = Bundle(store)
    many = bundle.add(lambda own: own.read_many([("ECHO", "one"), ("INFO", "server"), ("ECHO", "two")]))
    none = bundle.add(lambda own: own.read_many([]))
    bundle.run()
    one, info, two = many.result()
    assert (one, "redis_version" in info, two, none.result()) == (b"one", True, b"two", [])
    assert bundle.shortest
    idle = Bundle(store)
    idle.add(lambda own: own.read_many([]))
    idle.run()
    assert idle.shortest is None
    assert trips == [3]


def test_an_error_is_that_of_its_reading_and_ends_the_others(store: Store) -> None:
    store.read("SET", "text", "no list")
    bundle, went_on = Bundle(store), list[bytes]()

    def goes_on(own: Store) -> None:
        for number in range(50):
            went_on.append(own.read("ECHO", str(number)))

    bundle.add(lambda own: own.read("LRANGE", "text", 0, -1))
    bundle.add(goes_on)
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        bundle.run()
    assert went_on == [b"0"]


def test_what_a_server_refuses_is_none_for_who_asks_whether_it_is_allowed(store: Store) -> None:
    bundle = Bundle(store)
    refused, told = bundle.add(lambda own: own.allowed("NO SUCH")), bundle.add(asking(1, "a"))
    bundle.run()
    assert (refused.result(), told.result()) == (None, [b"a0"])


def test_a_missing_library_is_loaded_by_the_first_that_needs_it(store: Store, own_redis: RedisServer) -> None:
    store.clock()
    with own_redis.client() as client:
        client.execute_command("FUNCTION FLUSH")
    first, second = side_by_side(store, [lambda own: [own.clock().wall], lambda own: [own.clock().wall]])
    assert first
    assert second


def test_a_redis_that_is_away_is_said_to_the_caller(store: Store, own_redis: RedisServer) -> None:
    own_redis.kill()
    with pytest.raises(StoreUnavailable):
        side_by_side(store, [asking(2, "a"), asking(1, "b")])


def test_readings_have_the_deadline_of_their_caller(store: Store) -> None:
    with until(time.monotonic() - 1), pytest.raises(TimeoutError):
        side_by_side(store, [asking(1, "a"), asking(1, "b")])


def test_any_number_of_bundles_run_at_once(store: Store) -> None:
    def one(number: int) -> list[bytes]:
        return side_by_side(store, [asking(3, f"{number}a"), asking(2, f"{number}b")])

    with ThreadPoolExecutor(20) as threads:
        found = [*threads.map(one, range(60))]
    assert found == [
        [*(f"{n}a{i}".encode() for i in range(3)), *(f"{n}b{i}".encode() for i in range(2))] for n in range(60)
    ]
