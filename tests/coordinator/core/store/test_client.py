"""The one door to Redis: what a restart, a hang, a refusal and a fork look like from inside."""

import os
import pickle
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from coordinator import Coordinator
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.client import Store
from coordinator.core.store.times import milliseconds, seconds
from coordinator.errors import CoordinatorError, InvalidJob, SettingsError, StoreRefused, StoreUnavailable
from coordinator.local.redis import free_port
from tests.coordinator.core.store.stores import store_of, submit
from tests.harness.hand_node import sketch
from tests.harness.redis import RedisServer


def test_a_redis_that_came_back_is_used_again_without_an_error_when_the_connection_was_idle(
    store: Store, own_redis: RedisServer
) -> None:
    submit(store, "one")
    assert store.connections._idle
    store.connections._idle = [(connection, used - 60) for connection, used in store.connections._idle]
    own_redis.kill()
    own_redis.start()
    assert submit(store, "two") == b"queued"


def test_a_redis_that_is_away_is_told_within_the_timeout(store: Store, own_redis: RedisServer) -> None:
    submit(store, "one")
    own_redis.kill()
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(StoreUnavailable) as told:
            submit(store, "two")
        assert told.value.job_id == "two"
    assert time.monotonic() - began < 10
    own_redis.start()
    assert submit(store, "two") == b"queued"


def test_a_redis_that_hangs_is_told_within_the_timeout_and_its_late_answer_is_nobodys(
    store: Store, own_redis: RedisServer
) -> None:
    submit(store, "one")
    own_redis.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        submit(store, "two")
    assert 0.5 < time.monotonic() - began < 10
    own_redis.resume()
    assert submit(store, "three") == b"queued"
    assert submit(store, "two") in (b"duplicate", b"queued")
    assert store.step("job_progress", "one", "no-token", "1/2") == 0


def test_a_host_that_swallows_everything_is_told_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        store = store_of(f"redis://127.0.0.1:{deaf.getsockname()[1]}/0", timeout=1)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            submit(store, "one")
        assert time.monotonic() - began < 10
        store.close()


def test_a_full_redis_refuses_by_name_and_frees_what_ends(store: Store) -> None:
    submit(store, "one")
    token = "t" * 32
    store.step("node_register", "n", "i", 60000, '{"capacity": 1, "ordinary": 0, "load": 0}',
              '["app shop", "queue celery"]', '["shop.work"]')  # fmt: skip
    (bell,) = store.read("ZRANGE", store.key("rung", "n"), 0, -1)
    assert store.step("runner_take", "n", "i", "r", bell, token, 60000)
    store._client.config_set("maxmemory", 1)
    with pytest.raises(StoreRefused) as told:
        submit(store, "two")
    assert told.value.job_id == "two"
    again = [
        LaneClient(store).submit(sketch("a", job_id="one")),
        *LaneClient(store).submit_many([sketch("a", job_id="one")]),
    ]
    assert [told.outcome for told in again] == ["duplicate"] * 2, "it was done before"
    with pytest.raises(StoreRefused):
        LaneClient(store).submit_many([sketch("a", job_id="two")])
    done = store.step("job_finish", "one", token, "succeeded", "1", 0, "", "", "", "", "n", "r", "", 60000)
    assert done[:2] == [b"accepted", b"succeeded"]
    store._client.config_set("maxmemory", 0)
    assert submit(store, "two") == b"started"


def test_a_replica_refuses_by_name(store: Store) -> None:
    store._client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(StoreRefused):
        submit(store, "one")
    store._client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@127.0.0.1:{port}/0",
        "redis://me:s3cret@127.0.0.1:{port}/0",
        "redis://me:s3%40cr@s3cret@127.0.0.1:{port}/0",
        "redis://127.0.0.1:{port}/0?password=s3cret",
        "redis://127.0.0.1:{port}/0?db=0&password=s3cret&x=1",
    ],
)
def test_an_error_names_the_address_and_hides_the_password(url: str) -> None:
    port = free_port()
    store = store_of(url.format(port=port), timeout=1)
    assert "s3c" not in store.where
    assert str(port) in store.where
    with pytest.raises((CoordinatorError, TypeError)) as told:
        submit(store, "one")
    assert "s3c" not in str(told.value)
    store.close()


def test_an_error_reply_leaves_the_connection_in_step(store: Store) -> None:
    store._client.set(store.key("line", "a"), "not a line")
    for _ in range(3):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            submit(store, "one")
    store._client.delete(store.key("line", "a"), store.key("job", "one"))
    assert submit(store, "one") == b"queued"


def test_a_child_process_uses_connections_of_its_own(store: Store, tmp_path: Path) -> None:
    submit(store, "one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        answers = {submit(store, f"child-{i}") for i in range(50)}
        (tmp_path / "answers").write_text(repr(answers))
        os._exit(0)
    answers = {submit(store, f"parent-{i}") for i in range(50)}
    os.waitpid(pid, 0)
    assert answers == {b"queued"}
    assert (tmp_path / "answers").read_text() == "{b'queued'}"


def test_a_store_travels_by_its_settings(store: Store) -> None:
    copy: Store = pickle.loads(pickle.dumps(store))
    assert copy.settings == store.settings
    submit(store, "one")
    assert submit(copy, "two") == b"queued"
    copy.close()


def test_no_address_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(SettingsError, match="COORDINATOR_URL"):
        store_of("")


def test_seconds_and_milliseconds_turn_over_and_back() -> None:
    assert [milliseconds(0.0015), milliseconds(3)] == [2, 3000]
    assert [seconds(b"1500"), seconds("250"), seconds(None), seconds("")] == [1.5, 0.25, None, None]


@pytest.mark.parametrize(
    "asked",
    [
        lambda client, lone: client.job(lone),
        lambda client, lone: client.wait(lone, timeout=1),
        lambda client, lone: client.cancel("x", why=lone),
        lambda client, lone: client.retry(lone),
        lambda client, lone: client.move(lone),
        lambda client, lone: client.why(lone),
        lambda client, lone: client.pause(lone),
        lambda client, lone: client.release("a", why="", holder=lone),
        lambda client, lone: client.drain(lone),
        lambda client, lone: client.lanes(after=lone),
    ],
)
def test_what_utf_8_cannot_say_is_refused_by_name(
    coordinator: Coordinator, asked: Callable[[Coordinator, str], object]
) -> None:
    with pytest.raises(InvalidJob, match=r"lone.ud800"):
        asked(coordinator, "lone\ud800")
