"""The coordinator's own options and the app's; where it finds its Redis."""

import pytest
from celery import Celery

from coordinator import Coordinator
from coordinator.core.broker import is_amqp, is_redis, settings_of
from coordinator.errors import SettingsError


@pytest.mark.parametrize(
    ("broker", "url"),
    [
        ("redis://here/1", "redis://here/1"),
        ("redis+socket:///tmp/r.sock", "unix:///tmp/r.sock"),
        ("amqp://there", ""),
        (None, ""),
    ],
)
def test_a_redis_broker_serves_where_the_settings_name_no_redis(broker: str | None, url: str) -> None:
    app = Celery("shop", broker=broker, set_as_current=False)
    assert settings_of(app, {}).url == url
    assert settings_of(app, {}).source("url") == ("broker_url" if url else "default")
    assert settings_of(app, {"url": "redis://elsewhere/0"}).url == "redis://elsewhere/0"
    assert is_redis(broker) == bool(url)


def test_the_credential_provider_of_a_broker_s_url_comes_along_unless_the_settings_name_another_login() -> None:
    app = Celery("shop", broker="redis://here/1?credential_provider=logins.Mine&socket_timeout=3", set_as_current=False)
    settings = settings_of(app, {})
    assert (settings.url, settings.credential_provider) == ("redis://here/1?socket_timeout=3", "logins.Mine")
    assert settings_of(app, {"credential_provider": "a.B"}).credential_provider == "a.B"
    by_file = settings_of(app, {"password_file": "/f"})
    assert (by_file.url, by_file.credential_provider) == ("redis://here/1?socket_timeout=3", "")
    assert settings_of(app, {"url": "redis://elsewhere/0"}).credential_provider == ""


@pytest.mark.parametrize(
    ("broker", "speaks"),
    [
        (["amqp://a", "amqp://b"], True),
        ("pyamqp://a;amqp://b", True),
        (None, True),  # Celery's own default
        ("redis://here", False),
        ("memory://", False),
    ],
)
def test_rabbitmq_is_known_by_its_url_also_where_there_are_several(
    broker: str | list[str] | None, speaks: bool
) -> None:
    assert is_amqp(broker) == speaks


def behind_sentinels(**conf: object) -> Celery:
    app = Celery("shop", broker="sentinel://:secret@one:1/2;sentinel://two:2", set_as_current=False)
    app.conf.update({"broker_transport_options": {"master_name": "m"}, "result_backend": "sentinel://one:1/3"} | conf)
    return app


def test_a_broker_behind_sentinels_serves_where_it_says_all_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COORDINATOR_URL", raising=False)
    assert settings_of(behind_sentinels(), {}).url == "redis+sentinel://:secret@one:1,two:2/m/2"
    assert settings_of(behind_sentinels(broker_transport_options={}), {}).url == ""
    assert settings_of(behind_sentinels(broker_use_ssl={"ssl_ca_certs": "/ca"}), {}).url == ""


def test_celery_asks_a_sentinel_for_a_second_at_most_unless_the_app_says_otherwise() -> None:
    app = behind_sentinels(
        broker_transport_options={"master_name": "m", "sentinel_kwargs": {"password": "secret", "socket_timeout": 9}}
    )
    Coordinator(app)
    given = app.conf.broker_transport_options
    assert given["master_name"] == "m"
    assert given["sentinel_kwargs"] == {
        "password": "secret", "socket_timeout": 9, "socket_connect_timeout": 1, "retry": None
    }  # fmt: skip
    assert app.conf.result_backend_transport_options["sentinel_kwargs"]["socket_timeout"] == 1


@pytest.mark.parametrize("url", ["redis+cluster://h:1/0", "rediss+cluster://h:1", "rediscluster://h:1/0"])
def test_a_cluster_is_refused_as_a_broker(url: str) -> None:
    """kombu would take it for a Redis on this machine."""
    app = Celery("cluster", broker=url)
    with pytest.raises(SettingsError, match="names a Redis Cluster"):
        settings_of(app, {"url": "redis://127.0.0.1:1/0"})
