"""Celery's ways to name a Redis broker, on real servers: the coordinator reaches the same database, or says why not.

kombu is the judge: what it writes over the app's connection, the coordinator reads.
"""

import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, SettingsError
from tests.harness.redis import RedisServer
from tests.harness.tls import Certificates


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder = tmp_path_factory.mktemp("plain")
    with RedisServer(folder, "--unixsocket", str(folder / "s")) as server, server.client() as client:
        client.acl_setuser("me", enabled=True, passwords=["+a/b?c#d@e:f%g"], categories=["+@all"], keys=["*"])
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[RedisServer]:
    options = [part for name, value in certificates.of_server.items() for part in (f"--{name}", value)]
    with RedisServer(
        tmp_path_factory.mktemp("guarded"), *options, "--tls-auth-clients", "no", ssl=True, **certificates.of_client
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_other_source(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COORDINATOR_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)


def app_of(broker: object, use_ssl: object = None) -> Celery:
    app = Celery("shop", set_as_current=False)
    app.conf.update(broker_url=broker, broker_use_ssl=use_ssl, broker_transport_options={"global_keyprefix": "x."})
    Coordinator(app, prefix="addresses")
    return app


def both_meet(app: Celery) -> int:
    """The number of the database in which kombu wrote and the coordinator read."""
    with app.connection_for_write() as connection, app.coordinator as coordinator:
        client = connection.default_channel.client
        client.set("from kombu", "here")  # kombu puts its prefix before it
        number = int(client.get_connection_kwargs()["db"])
        assert coordinator.store.read("GET", "x.from kombu") == b"here"
        client.delete("from kombu")
    return number


SECRET = "a%2Fb%3Fc%23d%40e%3Af%25g"


@pytest.mark.parametrize(
    ("broker", "number"),
    [
        ("redis://127.0.0.1:{port}", 0),
        ("redis://127.0.0.1:{port}/", 0),
        ("redis://localhost:{port}/3", 3),
        ("redis://:{port}/3", 3),
        (f"redis://me:{SECRET}@127.0.0.1:{{port}}/2", 2),
        (["redis://127.0.0.1:{port}/3"], 3),
        ("redis+socket://{socket}", 0),
        ("redis+socket://{socket}?virtual_host=2", 2),
        (f"redis+socket://me:{SECRET}@{{socket}}?virtual_host=2", 2),
    ],
)
def test_the_coordinator_reaches_the_database_of_the_broker(
    plain: RedisServer, broker: str | list[str], number: int
) -> None:
    parts = {"port": plain.port, "socket": plain.client().config_get("unixsocket")["unixsocket"]}
    given = broker.format(**parts) if isinstance(broker, str) else [one.format(**parts) for one in broker]
    assert both_meet(app_of(given)) == number


@pytest.mark.parametrize(
    ("scheme", "query", "use_ssl"),
    [
        ("rediss", "?ssl_cert_reqs=CERT_NONE", None),
        ("rediss", "?ssl_cert_reqs=none", None),
        ("rediss", "?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs={ca}", None),
        ("rediss", "?ssl_cert_reqs=required&ssl_ca_certs={ca}&ssl_check_hostname=false", None),
        ("redis", "?ssl_cert_reqs=CERT_OPTIONAL&ssl_ca_certs={ca}", None),
        ("rediss", "", {"ssl_cert_reqs": ssl.CERT_NONE}),
        ("rediss", "", {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "{ca}"}),
        (
            "redis",
            "",
            {"ssl_cert_reqs": "required", "ssl_ca_certs": "{ca}", "ssl_certfile": "{cert}", "ssl_keyfile": "{key}"},
        ),
    ],
)
def test_the_coordinator_trusts_as_the_broker_says(
    guarded: RedisServer, certificates: Certificates, scheme: str, query: str, use_ssl: Mapping[str, Any] | None
) -> None:
    ca, cert, key = certificates.of_client.values()
    files = {"ca": ca, "cert": cert, "key": key}
    given = {
        name: value.format(**files) if isinstance(value, str) else value for name, value in (use_ssl or {}).items()
    }
    assert both_meet(app_of(f"{scheme}://127.0.0.1:{guarded.port}/1{query.format(**files)}", given or None)) == 1


@pytest.mark.parametrize(
    ("broker", "use_ssl", "said"),
    [
        ("redis://:secret@one/1;redis://:secret@two/1", None, "broker_url names 2 brokers, .*: name that one in coord"),
        (["redis://:secret@one/1", "redis://:secret@two/1"], None, "broker_url names 2 brokers"),
        ("redis://:secret@one/1,redis://:secret@two/1", None, r"\(broker_url\): the URL names several servers"),
        ("redis://me:se/cret@one/1", None, "the Redis of broker_url: .*%2F"),
        ("redis://one/secret", None, r"setting url \(broker_url\): the URL names a database that is no number"),
        ("redis://one/1?virtual_host=3", None, r"setting url \(broker_url\): .*'virtual_host'"),
        (
            "rediss://one/1",
            {"keyfile": "/k", "cert_reqs": 2},
            "broker_url: broker_use_ssl has keyfile, cert_reqs, and a R",
        ),
        ("redis+cluster://:secret@one;redis://two", None, "names a Redis Cluster"),
    ],
)
def test_what_the_coordinator_cannot_use_is_refused_by_the_name_of_the_setting(
    broker: object, use_ssl: object, said: str
) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        _ = app_of(broker, use_ssl).coordinator.store.read("PING")
    assert "secret" not in str(refused.value)


def test_a_broker_of_the_environment_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://one/1;redis://two/1")
    with pytest.raises(SettingsError, match="CELERY_BROKER_URL names 2 brokers"):
        _ = app_of("redis://one/1").coordinator.settings
