"""The way of a wake-up from the list of a node through its clock: neither Redis nor the worker holds it up for long."""

import socket
import threading

from coordinator.warden.clock.wakes import WakeReader, wake_worker
from tests.coordinator.warden.clock.test_clock import clock_of
from tests.harness.redis import RedisServer


def test_the_clock_waits_for_wake_ups_again_once_redis_is_back(own_redis: RedisServer, prefix: str) -> None:
    woken = list[bytes]()
    clock = clock_of(own_redis, prefix, timeout=0.5)
    reader, key = WakeReader(clock, woken.append), clock.store.key("wakes", "a", "one")
    with clock.store.pop(key) as pop, own_redis.client() as client:
        client.rpush(key, "1-1")
        reader._pass_on(pop)
        own_redis.kill()
        reader._pass_on(pop)
        own_redis.start()
        client.rpush(key, "1-2")
        while woken == [b"1-1"]:
            reader._pass_on(pop)
    assert woken == [b"1-1", b"1-2"]


def test_a_worker_that_does_not_read_its_wake_ups_holds_up_no_clock() -> None:
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        waking = threading.Thread(target=lambda: [wake_worker(other, b"1-1") for _ in range(1000)], daemon=True)
        waking.start()
        waking.join(20)
        assert not waking.is_alive()
        wake_worker(other, 1_000_000 * b"9")
        assert ours.recv(10) == b"1-1"
