"""A store through Redis Sentinel: it finds the master, also a new one, and says what is wrong."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from coordinator.core.store.client import Store
from coordinator.core.store.server import server_findings
from coordinator.errors import SettingsError, StoreRefused
from tests.coordinator.core.store.stores import fault, put, store_of, submit
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels
from tests.harness.tls import Certificates
from tests.harness.waiting import wait_until, within


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    with Sentinels(tmp_path / "sentinels") as found:
        yield found


def leads_to(store: Store) -> int:
    """The port that the step of the hot path reaches."""
    connection = store.connections._borrow()
    connection.connect()
    store.connections._idle.append((connection, time.monotonic()))
    return int(connection.port)


def test_a_wrong_address_is_told_with_the_way_out(sentinels: Sentinels, redis_server: RedisServer) -> None:
    url = sentinels.url(0)
    hosts = url.removesuffix("/mymaster/0")
    assert "know no master 'nobody'; name one that they know in the URL: 'mymaster'" in fault(f"{hosts}/nobody")
    assert "the server at this address is not a sentinel" in fault(f"redis+sentinel://127.0.0.1:{redis_server.port}/m")
    assert "no sentinel answers (127.0.0.1:1: " in fault("redis+sentinel://127.0.0.1:1/mymaster")
    with pytest.raises(StoreRefused, match="has no database of this number"):
        submit(store_of(f"{hosts}/mymaster/99"), "one")
    assert "refuses this user or password" in fault(url.replace("//", "//me:secret@"))
    assert "secret" not in fault(url.replace("//", "//me:secret@"))
    with pytest.raises(SettingsError, match="unexpected keyword argument 'pasword'"):
        store_of(f"{url}?sentinel_pasword=secret")
    with pytest.raises(SettingsError, match="unexpected keyword argument 'colour'"):
        submit(store_of(f"{url}?colour=red"), "one")


def test_a_sentinel_that_hangs_costs_a_part_of_a_call_and_a_master_without_replicas_is_left(
    sentinels: Sentinels,
) -> None:
    url, first = sentinels.url(0), sentinels.servers[0]

    # A sentinel that hangs costs a part of one call; the store asks it last from then on.
    sentinels.pause_sentinel(0)
    store = store_of(url, timeout=6)
    with within(6):
        assert submit(store, "one") == b"queued"
    with within(1.5):
        assert store.read("PING")
    sentinels.resume_sentinel(0)

    # A master that was cut off from its replicas refuses, and the store leaves it.
    with first.client() as client:
        client.config_set("min-replicas-to-write", 3)
        with pytest.raises(StoreRefused, match="good replicas"):
            submit(store, "two")
        assert not store.connections._idle
        client.config_set("min-replicas-to-write", 0)
        assert {"redis.failover", "redis.replicas"} & codes(store) == {"redis.failover"}
        for replica in sentinels.servers[1:]:
            replica.kill()
        wait_until(lambda: not client.info("replication")["connected_slaves"])
    assert {"redis.failover", "redis.replicas"} <= codes(store)
    store.close()


def codes(store: Store) -> set[str]:
    """What `doctor` finds of this Redis."""
    return {finding.code for finding in server_findings(store)}


def test_a_store_follows_the_master_that_hangs_and_leaves_it_for_good(sentinels: Sentinels) -> None:
    url, first = sentinels.url(0), sentinels.servers[0]
    store = store_of(url, timeout=1.5)
    assert submit(store, "one") == b"queued"
    assert store.read("WAIT", 1, 20_000) > 0, "a replica has it"

    # One timeout, and all connections to it are left for those to the next one.
    former, *held = [store.connections._borrow() for _ in range(5)]
    former.connect()
    for connection in held:
        connection.connect()
        store.connections._idle.append((connection, time.monotonic()))
    first.pause()
    began = time.monotonic()
    patient = store_of(url, timeout=20)
    late = ThreadPoolExecutor().submit(put, patient, "late")
    second = sentinels.after(first)
    assert not put(store, "two")
    assert not store.connections._idle
    wait_until(lambda: put(store, "two"))
    assert time.monotonic() - began < 40
    store.connections._idle.append((former, time.monotonic()))  # of a thread that was busy meanwhile
    assert leads_to(store) == second.port
    assert store.read("EXISTS", store.key("job", "one")) == 1

    # It comes back as a replica, and no call of ours goes there.
    first.resume()
    assert not late.result(), "it took itself for the master when it answered"
    wait_until(lambda: sentinels.role(first) == "slave")
    assert submit(store, "three") == b"queued"
    assert leads_to(store) == second.port
    store.connections.disconnect()
    with pytest.raises(redis.ConnectionError, match="is not the master any more"):
        store.connections._borrow().connect_to(("127.0.0.1", first.port))  # type: ignore[attr-defined]
    store.close()
    patient.close()


@pytest.mark.tls
def test_servers_and_sentinels_want_a_password_each_and_a_certificate(tmp_path: Path) -> None:
    with Sentinels(tmp_path / "sentinels", secret=True, certificates=Certificates(tmp_path / "tls")) as found:
        url, first = found.url(0), found.servers[0]
        store = store_of(url, timeout=1.5)
        assert submit(store, "one") == b"queued"
        found.settle()
        first.kill()
        found.after(first)
        wait_until(lambda: put(store, "two"))
        assert store.read("EXISTS", store.key("job", "one")) == 1
        store.close()
        for secret in ("of-servers", "of-sentinels"):
            assert secret not in store.where
        secret_file = tmp_path / "password"
        secret_file.write_text("of-servers\n")
        by_file = store_of(url.replace(":of-servers@", ""), password_file=str(secret_file))
        assert submit(by_file, "three") == b"queued"
        by_file.close()
        assert "sets these by ?sentinel_username" in fault(url.replace("of-sentinels", "wrong"))
        assert "refuses this user or password" in fault(url.replace("of-servers", "wrong"))
        assert "with ssl_… the URL begins with rediss" in fault(url.replace("rediss+", "redis+"))
        assert "certificate" in fault(url.partition("&ssl_ca_certs")[0])
