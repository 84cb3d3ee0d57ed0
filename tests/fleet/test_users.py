"""A node and a client over TLS, each as the user whose rules docs/operations.md names, and as one that may do less."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname

import pytest

from coordinator import Coordinator, StoreRefused, StoreUnavailable
from coordinator.core.settings import Settings
from coordinator.ops.diagnosis.redis_check import check_redis
from tests.harness.cluster import Cluster
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.tls import Certificates
from tests.harness.waiting import wait_until

ROOT = Path(__file__).parents[2]
PREFIX = "coord"


def rules() -> list[str]:
    """The lines of the example, as Redis reads them."""
    text = (ROOT / "docs/operations.md").read_text()
    (block,) = re.findall(r"```acl\n(.*?)```", text, re.DOTALL)
    return [line for line in block.splitlines() if line]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "tls")


@pytest.fixture
def guarded(tmp_path: Path, certificates: Certificates) -> Iterator[RedisServer]:
    users = tmp_path / "users.acl"
    users.write_text("\n".join([*rules(), "user test on >test ~* &* +@all"]) + "\n")
    options = [part for name, value in certificates.of_server.items() for part in (f"--{name}", value)]
    login = {"ssl": True, "username": "test", "password": "test", **certificates.of_client}
    with RedisServer(tmp_path / "guarded", *options, "--aclfile", str(users), **login) as server:
        yield server


def test_each_of_the_users_that_the_docs_name_may_do_its_work_and_a_lesser_one_is_told_what_it_lacks(
    guarded: RedisServer, certificates: Certificates, redis_server: RedisServer, tmp_path: Path
) -> None:
    def url(user: str, database: int) -> str:
        return f"rediss://{user}:{user}-secret@127.0.0.1:{guarded.port}/{database}?{certificates.query}"

    def client(url: str) -> Coordinator:
        return Coordinator(url=url, prefix=PREFIX)

    with Fleet(redis_server, PREFIX, tmp_path) as fleet, guarded.client() as looks:
        celery = "&ssl_cert_reqs=required"
        fleet.environ |= {"COORDINATOR_URL": url("node", 0)}
        fleet.environ |= {"TEST_BROKER": url("celery", 1) + celery, "TEST_BACKEND": url("celery", 2) + celery}
        fleet.worker("one", 1)
        work = fleet.shop.work

        asks = client(url("client", 0))
        with asks.lock("the server's first fence"):
            pass
        job = asks.submit("a", work.s("by the client"))
        assert asks.wait(job.id, 60).state == "succeeded"
        assert work.AsyncResult(job.id).get(timeout=60) == "by the client"
        assert work.delay("ordinary").get(timeout=60) == "ordinary"
        with asks.lock("b", blocking_timeout=60), fleet.coordinator.lock("c"):
            pass
        assert any(library.current for library in client(url("node", 0)).store.libraries())
        assert [(one["username"], one["object"]) for one in looks.acl_log()] == []

        looks.acl_setuser("lesser", enabled=True, passwords=["+lesser-secret"], keys=["other*"], categories=["+@all"])
        with pytest.raises(StoreRefused, match=r"forbids that to this user: .* keys .*; a user needs ~\{PREFIX\}:\*"):
            client(url("lesser", 0)).submit("a", work.s("never"))
        with pytest.raises(StoreRefused, match="forbids that to this user"):
            client(url("celery", 0).replace("celery", "client")).store.read("FLUSHALL")
        with pytest.raises(StoreUnavailable, match="refuses this user or password"):
            client(url("nobody", 0)).submit("a", work.s("never"))
        with pytest.raises(StoreUnavailable, match="certificate"):
            client(url("client", 0).partition("?")[0]).submit("a", work.s("never"))
        alone = f"ssl_ca_certs={certificates.of_client['ssl_ca_certs']}"
        with pytest.raises(StoreUnavailable):
            client(f"{url('client', 0).partition('?')[0]}?{alone}").submit("a", work.s("never"))


def test_the_users_that_the_docs_name_may_do_their_work_on_a_cluster(redis_server: RedisServer, tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", PREFIX) as cluster, ExitStack() as opened:
        clients = [opened.enter_context(server.client()) for server in cluster.servers]
        for line in rules()[1:]:  # as the default user, the nodes of the test's cluster follow each other
            for client in clients:
                client.execute_command("ACL", "SETUSER", *line.split()[1:])

        def url(user: str) -> str:
            return cluster.url(0).replace("//", f"//{user}:{user}-secret@")

        with Fleet(redis_server, PREFIX, tmp_path, url=url("node")) as fleet:
            fleet.worker("one", 1)
            asks = Coordinator(url=url("client"), prefix=PREFIX)
            job = asks.submit("a", fleet.shop.work.s("by the client"))
            assert asks.wait(job.id, 60).state == "succeeded"
            with asks.lock("b", blocking_timeout=60):
                pass
            assert [entry["object"] for client in clients for entry in client.acl_log()] == []

            node, lesser = (check_redis(Settings(url=url(user))) for user in ("node", "client"))
            assert {line.check for line in node if line.verdict != "ok"} == {"persistence", "replication"}
            assert {line.check: line.verdict for line in lesser}["functions"] == "warning"
            assert "refused" not in {line.verdict for line in lesser}


def test_a_running_node_goes_on_when_its_password_changes_and_its_connections_tell_whose_they_are(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("one\n")
    with RedisServer(tmp_path / "guarded") as guarded, guarded.client() as looks:
        looks.execute_command("ACL", "SETUSER", "node", "on", ">one", "~*", "&*", "+@all")
        url = f"redis://node@127.0.0.1:{guarded.port}/0"
        with Fleet(redis_server, PREFIX, tmp_path, url=url, password_file=secret) as fleet:
            worker = fleet.worker("one", 1)
            life, supervisor = fleet.lives("one@test"), worker.supervisor().pid
            fleet.coordinator.submit("a", fleet.shop.work.s("before")).get(timeout=60)
            fleet.coordinator.submit("b", fleet.shop.fail.s("for its alert"))
            worker.maintenance()

            def roles() -> set[str]:
                return {client["name"] for client in looks.client_list()}

            mine = f"coordinator:client:{gethostname()}"
            processes = {f"coordinator:{role}:one@test" for role in ("supervisor", "runner", "maintenance")}
            wait_until(lambda: roles() >= {mine, *processes}, what=lambda: f"{roles()}")

            looks.execute_command("ACL", "SETUSER", "node", "resetpass", ">two")
            looks.execute_command("CLIENT", "KILL", "USER", "node")
            # A connection that was used just now is not looked at before its next use.
            with pytest.raises(StoreUnavailable, match=r"refuses this user or password|closed by server"):
                fleet.coordinator.submit("a", fleet.shop.work.s("while the file is behind"))
            wait_until(lambda: "refuses this user or password" in fleet.logs())
            secret.write_text("two\n")
            fleet.coordinator.submit("a", fleet.shop.work.s("after")).get(timeout=60)
            assert (fleet.lives("one@test"), worker.supervisor().pid) == (life, supervisor)
