"""The coordinator's own options and the app's; where it finds its Redis."""

import pytest
from celery import Celery

from coordinator.broker.transport import is_redis, settings_of


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
