"""An exchange awake: what it does not do itself it leaves to redis-py, and nothing is lost or mixed up."""

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from coordinator.store.wire import exchange_awake, pack
from tests.harness.redis import RedisServer

PING = pack("PING")


@pytest.fixture
def connection(redis_server: RedisServer) -> Iterator[redis.Connection]:
    found = redis.Connection(port=redis_server.port, socket_timeout=2.0)
    found.connect()
    yield found
    found.disconnect()


def test_an_answer_is_there_for_redis_py_to_read(connection: redis.Connection) -> None:
    for number in range(100):
        assert exchange_awake(connection, pack("ECHO", str(number)), 1.0)
        assert connection.read_response() == str(number).encode()


def test_an_answer_that_comes_late_or_in_pieces_is_waited_for_as_usual(connection: redis.Connection) -> None:
    text = "x" * 3_000_000
    assert exchange_awake(connection, pack("ECHO", text), 0.0)
    assert connection.read_response() == text.encode()
    assert exchange_awake(connection, pack("ECHO", text), 1.0)
    assert connection.read_response() == text.encode()
    assert exchange_awake(connection, pack("BLPOP", "nothing", "0.2"), 0.001)
    assert connection.read_response() is None


def test_an_error_is_raised_as_redis_py_does(connection: redis.Connection) -> None:
    assert exchange_awake(connection, pack("NOTHING"), 1.0)
    with pytest.raises(redis.exceptions.ResponseError, match="unknown command"):
        connection.read_response()
    assert exchange_awake(connection, PING, 1.0)
    assert connection.read_response() == b"PONG"


def test_a_connection_that_was_closed_meanwhile_is_told(connection: redis.Connection) -> None:
    cast(Any, connection)._sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(redis.exceptions.ConnectionError):
        exchange_awake(connection, PING, 1.0)


def test_a_server_that_hangs_up_instead_of_an_answer_is_told() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        with listener.accept()[0] as client:
            client.recv(100)

    thread = threading.Thread(target=hang_up)
    thread.start()
    plain = socket.create_connection(listener.getsockname(), timeout=2.0)
    parser = SimpleNamespace(_reader=SimpleNamespace(feed=lambda answer: None))
    with plain, pytest.raises(redis.exceptions.ConnectionError, match="closed the connection"):
        exchange_awake(cast(redis.Connection, SimpleNamespace(_sock=plain, _parser=parser)), PING, 5.0)
    thread.join()
    listener.close()


@pytest.mark.parametrize(
    "other",
    [
        SimpleNamespace(_sock=None, _parser=None),
        SimpleNamespace(_sock=object(), _parser=SimpleNamespace(_reader=None)),
        SimpleNamespace(),
    ],
    ids=["not connected", "another socket", "another library"],
)
def test_another_connection_is_left_to_redis_py_and_nothing_was_sent(other: object) -> None:
    assert not exchange_awake(cast(redis.Connection, other), PING, 1.0)
