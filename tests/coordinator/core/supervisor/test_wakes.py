"""The way of a wake-up from Redis into the socket of the worker."""

import logging
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from coordinator.core.supervisor.supervisor import Supervisor
from coordinator.core.supervisor.wakes import WakeReader, wake_worker
from tests.coordinator.core.supervisor.test_supervisor import supervisor_of
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

LAST = b"last"


class Woken:
    """What a reader passes on. `errors`: those that it meets first."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self._wakes: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def wake(self, wake: bytes) -> None:
        if wake == LAST:
            raise SystemExit
        if self._errors:
            raise self._errors.pop(0)
        self._wakes.put(wake)

    def next(self) -> bytes:
        return self._wakes.get(timeout=60)


class Ending(WakeReader):
    """One that ends with the last wake-up."""

    def run(self) -> None:
        with suppress(SystemExit):
            super().run()


def push(supervisor: Supervisor, wake: bytes) -> None:
    config = supervisor.config
    supervisor.store._client.rpush(supervisor.store.key("wakes", config.incarnation, config.node), wake)


@contextmanager
def reading(supervisor: Supervisor, *errors: Exception) -> Iterator[Woken]:
    woken = Woken(*errors)
    reader = Ending(supervisor, woken.wake)
    reader.start()
    yield woken
    push(supervisor, LAST)
    reader.join(60)
    assert not reader.is_alive()


def test_wake_ups_are_passed_on_in_their_order(redis_server: RedisServer, prefix: str) -> None:
    supervisor = supervisor_of(redis_server, prefix)
    node = Puppet(supervisor.store)
    supervisor.step()
    with reading(supervisor) as woken:
        node.submit("a")
        node.submit("b")
        assert [woken.next().decode() for _ in range(2)] == node.rung()
    node.order()


def test_wake_ups_are_passed_on_again_after_redis_was_away(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervisor_of(own_redis, "own", timeout=1)
    with caplog.at_level(logging.INFO), reading(supervisor) as woken:
        push(supervisor, b"1-1")
        assert woken.next() == b"1-1"
        own_redis.kill()
        wait_until(lambda: "wake-ups of one come later" in caplog.text)
        own_redis.start()
        push(supervisor, b"1-2")
        assert woken.next() == b"1-2"
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_wake_ups_are_passed_on_after_an_error(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervisor_of(redis_server, prefix)
    with reading(supervisor, ValueError("no socket")) as woken:
        push(supervisor, b"1-1")
        push(supervisor, b"1-2")
        assert woken.next() == b"1-2"
    assert "no socket" in caplog.text


def test_a_worker_that_reads_nothing_never_holds_up_its_supervisor() -> None:
    ours, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    most = 100_000

    def fill() -> None:
        for number in range(most):
            wake_worker(ours, b"%d-1" % number)

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    filling.join(60)
    assert not filling.is_alive(), "it waits for the worker"
    workers.setblocking(False)
    read = 0
    with suppress(BlockingIOError):
        while workers.recv(255):
            read += 1
    assert 0 < read < most
    wake_worker(ours, b"next")
    assert workers.recv(255) == b"next"
    for end in (ours, workers):
        end.close()


@pytest.mark.parametrize("which", [0, 1], ids=["the supervisor's", "the worker's"])
def test_an_end_of_the_socket_that_is_closed_disturbs_no_supervisor(which: int) -> None:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends[which].close()
    wake_worker(ends[0], b"1-1")
    ends[1 - which].close()
