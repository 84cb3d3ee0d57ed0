"""The connections of a store: any number of threads, outages and failovers."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.client import Store
from coordinator.errors import StoreRefused, StoreUnavailable
from tests.coordinator.core.store.stores import store_of, submit
from tests.harness.hand_node import sketch
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


def test_redis_is_reached_again_however_many_connections_broke(store: Store, own_redis: RedisServer) -> None:
    own_redis.kill()
    for _ in range(120):
        with pytest.raises(StoreUnavailable):
            submit(store, "one")
        with pytest.raises(StoreUnavailable):
            store.call(store._client.ping)
    own_redis.start()
    assert submit(store, "one") == b"queued"
    assert store.call(store._client.ping)


def test_any_number_of_threads_ask_and_wait_at_once(store: Store, own_redis: RedisServer) -> None:
    submit(store, "one")
    lanes, told = LaneClient(store), []
    store._client.client_pause(500)

    def ask(name: str) -> None:
        told.append(submit(store, name))
        told.append(lanes.wait("one", 60).state)

    threads = [threading.Thread(target=ask, args=(f"of-{i}",)) for i in range(150)]
    for thread in threads:
        thread.start()
    with own_redis.client() as client:
        wait_until(lambda: client.pubsub_numsub("{t}:done:one")[0][1] == 150)
    assert lanes.cancel("one") == "cancelled"
    for thread in threads:
        thread.join()
    assert sorted(told, key=str) == [*[b"queued"] * 150, *["cancelled"] * 150]


def set_one(store: Store, name: str) -> None:
    store.call(lambda: store._client.set(store.key(name), 1))


def submit_many(store: Store, name: str) -> None:
    for reply in store.step_many("job_submit", [sketch("a", job_id=name).step_args()]):
        if isinstance(reply, redis.ReadOnlyError):
            raise StoreRefused(str(reply))


@pytest.mark.parametrize("ask", [submit, submit_many, set_one], ids=lambda ask: ask.__name__)
def test_after_a_failover_behind_one_address_the_new_master_is_asked(
    ask: Callable[[Store, str], object], own_redis: RedisServer, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "new") as new, Proxy(own_redis.port) as proxy, own_redis.client() as old:
        store = store_of(proxy.url())
        ask(store, "one")
        proxy.target = new.port
        old.replicaof("127.0.0.1", new.port)
        with pytest.raises(StoreRefused):
            ask(store, "two")
        ask(store, "three")
        store.close()


def test_threads_never_get_each_others_answers(store: Store) -> None:
    wrong: list[bytes] = []

    def ask(name: str) -> None:
        for i in range(100):
            answer = store.step("job_submit", *sketch(name, job_id=f"{name}-{i}").step_args())
            if answer[2] != f"{name}-{i}".encode():
                wrong.append(answer[2])

    threads = [threading.Thread(target=ask, args=(f"k{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
