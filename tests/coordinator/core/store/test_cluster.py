"""A store in one slot of a Redis Cluster: it finds the primary of its slot, also a new one, and says what is wrong."""

from pathlib import Path

import pytest

from coordinator.errors import CoordinatorError, StoreUnavailable
from tests.coordinator.core.store.stores import fault, put, store_of, submit
from tests.harness.cluster import Cluster
from tests.harness.redis import RedisServer
from tests.harness.tls import Certificates
from tests.harness.waiting import wait_until


@pytest.mark.tls
def test_a_store_follows_its_slot_behind_a_password_and_tls(tmp_path: Path, redis_server: RedisServer) -> None:
    with Cluster(tmp_path / "cluster", "t", "of-all", Certificates(tmp_path / "tls")) as cluster:
        url = cluster.url(0)
        store, first, last = store_of(url, timeout=5), cluster.servers[0], cluster.servers[3]
        assert submit(store, "one") == b"queued"
        assert store.master == f"127.0.0.1:{first.port}"

        with last.client() as client:
            client.execute_command("CLUSTER FAILOVER")
        assert cluster.after(first) is last
        with pytest.raises(CoordinatorError, match="of the cluster is, or will be, at 127"):
            submit(store, "two")  # over the connection that it has
        assert submit(store, "two") == b"queued"
        assert store.read("EXISTS", store.key("job", "one")) == 1
        assert store.master == f"127.0.0.1:{last.port}"
        store.close()

        secret = tmp_path / "password"
        secret.write_text("of-all\n")
        by_file = store_of(url.replace(":of-all@", ""), password_file=str(secret))
        assert submit(by_file, "three") == b"queued"
        by_file.close()

        assert "invalid username-password" in fault(url.replace("of-all", "wrong"))
        assert "of-all" not in fault(url.partition("&ssl_ca_certs")[0].replace("ssl_ca_certs", "ssl_certfile"))
    assert "no node of the cluster names a primary (127.0.0.1:1: " in fault("redis+cluster://127.0.0.1:1")
    assert "cluster support disabled" in fault(f"redis+cluster://127.0.0.1:{redis_server.port}")


def test_while_a_slot_moves_calls_wait_and_then_go_on_at_the_other_node(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", "t") as cluster:
        store, nodes = store_of(cluster.url(0), timeout=5), cluster.servers[:3]
        assert submit(store, "one") == b"queued"
        with nodes[0].client() as source, nodes[1].client() as target, nodes[2].client() as third:
            names = [str(node.execute_command("CLUSTER MYID")) for node in (source, target)]
            target.execute_command("CLUSTER SETSLOT", cluster.slot, "IMPORTING", names[0])
            source.execute_command("CLUSTER SETSLOT", cluster.slot, "MIGRATING", names[1])
            with pytest.raises(StoreUnavailable, match="is, or will be, at 127"):
                submit(store, "two")
            keys = source.execute_command("CLUSTER GETKEYSINSLOT", cluster.slot, 1000)
            source.execute_command("MIGRATE", "127.0.0.1", nodes[1].port, "", 0, 5000, "KEYS", *keys)
            for node in (target, source, third):
                node.execute_command("CLUSTER SETSLOT", cluster.slot, "NODE", names[1])
        wait_until(lambda: put(store, "two"))
        assert submit(store, "one") == b"duplicate"
        assert store.master == f"127.0.0.1:{nodes[1].port}"
        store.close()
