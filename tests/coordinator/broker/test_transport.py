"""The coordinator's own options and the app's; where it finds its Redis."""

import pytest
from celery import Celery

from coordinator.broker.transport import is_amqp, is_redis, settings_of


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
    assert settings_of(app, {"url": "redis://elsewhere/0"}).url == "redis://elsewhere/0"
    assert is_redis(broker) == bool(url)


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
