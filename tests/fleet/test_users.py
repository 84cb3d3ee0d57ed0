"""A node and a client over TLS, each as the user whose rules docs/operations.md names, and as one that may do less."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator import Coordinator, StoreRefused, StoreUnavailable
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.tls import Certificates

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
        assert asks.wait(job.id, 20).state == "succeeded"
        assert work.AsyncResult(job.id).get(timeout=5) == "by the client"
        assert work.delay("ordinary").get(timeout=10) == "ordinary"
        with asks.lock("b", blocking_timeout=5), fleet.coordinator.lock("c"):
            pass
        assert any(library.current for library in client(url("node", 0)).store.libraries())
        assert [(one["username"], one["object"]) for one in looks.acl_log()] == []

        looks.acl_setuser("lesser", enabled=True, passwords=["+lesser-secret"], keys=["other*"], categories=["+@all"])
        with pytest.raises(StoreRefused, match=r"forbids that to this user: .* keys .*; the page on operations names"):
            client(url("lesser", 0)).submit("a", work.s("never"))
        with pytest.raises(StoreRefused, match="forbids that to this user"):
            client(url("celery", 0).replace("celery", "client")).store.read("FLUSHALL")
        with pytest.raises(StoreUnavailable, match="does not take this user and password"):
            client(url("nobody", 0)).submit("a", work.s("never"))
        with pytest.raises(StoreUnavailable, match="certificate"):
            client(url("client", 0).partition("?")[0]).submit("a", work.s("never"))
        alone = f"ssl_ca_certs={certificates.of_client['ssl_ca_certs']}"
        with pytest.raises(StoreUnavailable):
            client(f"{url('client', 0).partition('?')[0]}?{alone}").submit("a", work.s("never"))
