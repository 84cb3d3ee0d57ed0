"""A step of Redis puts a doorbell into the node's queue itself, where the broker is a database of the same Redis."""

import base64
import json
from typing import Any

import pytest
from celery import Celery

from coordinator.broker.bell_message import about_bells
from coordinator.broker.doorbells import Doorbells, queue_of
from coordinator.store.client import Store
from tests.harness.hand_node import TASKS, Puppet
from tests.harness.redis import RedisServer


def shop(redis_server: RedisServer, prefix: str, url: str = "", **conf: Any) -> Celery:
    app = Celery("shop", broker=url or redis_server.url(8), set_as_current=False)
    app.conf.update(broker_transport_options={"global_keyprefix": f"{prefix}."}, **conf)
    return app


def register(node: Puppet, about: dict[str, Any]) -> None:
    fields = {"app": "shop", "capacity": 4, "ordinary": 0, "load": 0, **about}
    assert node.nodes.register(node.name, "a", fields, ["app shop", "queue celery"], TASKS)


def in_queue(redis_server: RedisServer, prefix: str, node: Puppet) -> list[dict[str, Any]]:
    with redis_server.client(8) as client:
        found: Any = client.lrange(f"{prefix}.{queue_of(node.name).name}", 0, -1)
        client.delete(f"{prefix}.{queue_of(node.name).name}")
    return [json.loads(one) for one in found]


def rung(node: Puppet, **options: Any) -> list[tuple[str, str]]:
    """The bells that a submit has its caller publish."""
    told: list[tuple[str, str]] = []
    node.store.ringer = lambda name, bell: told.append((name, bell))
    node.submit("a", **options)
    return told


def test_a_submit_puts_the_message_that_the_app_would_publish(
    redis_server: RedisServer, store: Store, node: Puppet, prefix: str
) -> None:
    with shop(redis_server, prefix) as app:
        register(node, dict(about_bells(app, store, node.name)))
        assert rung(node) == []
        [put] = in_queue(redis_server, prefix, node)
        [bell] = node.rung()
        Doorbells(app).ring(node.name, bell)
        [published] = in_queue(redis_server, prefix, node)
    assert put["headers"].pop("id") == bell == published["headers"].pop("id")
    assert json.loads(base64.b64decode(put.pop("body")))[0] == []
    assert json.loads(base64.b64decode(published.pop("body")))[0] == [bell]
    tags = [one["properties"].pop("delivery_tag") for one in (put, published)]
    assert tags[0].startswith(store.prefix)
    for one in (put, published):
        for name in ("argsrepr", "root_id", "origin"):
            one["headers"].pop(name)
    assert put == published


def test_each_message_has_a_tag_of_its_own_also_that_of_a_bell_that_is_rung_again(
    redis_server: RedisServer, store: Store, node: Puppet, prefix: str
) -> None:
    with shop(redis_server, prefix) as app:
        register(node, dict(about_bells(app, store, node.name)))
    rung(node)
    [bell] = node.rung()
    node.store._client.zadd(node.store.key("rung", node.name), {bell: 1})  # overdue
    beat = node.nodes.beat(node.name, "a", {})
    assert beat is not None
    assert beat.bells == []
    again, first = in_queue(redis_server, prefix, node)
    assert again["headers"]["id"] == first["headers"]["id"] == bell
    assert again["properties"]["delivery_tag"] != first["properties"]["delivery_tag"]


def test_a_bell_that_is_put_there_is_overdue_after_two_seconds_whoever_submitted(
    redis_server: RedisServer, store: Store, node: Puppet, prefix: str
) -> None:
    with shop(redis_server, prefix) as app:
        register(node, dict(about_bells(app, store, node.name)))
    node.store.ringer = None  # a plain client
    node.submit("a")
    [bell] = node.rung()
    due: Any = node.store._client.zscore(node.store.key("rung", node.name), bell)
    assert 1900 <= due - int(bell.partition("-")[0]) <= 2100
    assert len(in_queue(redis_server, prefix, node)) == 1


def test_where_the_server_refuses_the_caller_publishes(
    redis_server: RedisServer, store: Store, node: Puppet, prefix: str
) -> None:
    with shop(redis_server, prefix) as app:
        about = dict(about_bells(app, store, node.name))
    register(node, about | {"bell_queue": str(about["bell_queue"]).replace("8 ", "9999 ", 1)})
    [(name, bell)] = rung(node)
    assert (name, [bell]) == (node.name, node.rung())
    node.store._client.zadd(node.store.key("rung", node.name), {bell: 1})
    beat = node.nodes.beat(node.name, "a", {})
    assert beat is not None
    assert beat.bells == [bell]


def test_nothing_stays_of_the_message_that_was_tried(redis_server: RedisServer, store: Store, prefix: str) -> None:
    with shop(redis_server, prefix) as app, redis_server.client(8) as client:
        assert about_bells(app, store, "one@test")
        assert client.keys(f"*{prefix}*") == []


@pytest.mark.parametrize(
    "conf", [{"task_protocol": 1}, {"broker_transport_options": {"priority_steps": [1, 5, 9]}}], ids=str
)
def test_a_message_that_a_step_could_not_name_or_place_is_published_and_nothing_stays_of_the_trial(
    conf: dict[str, Any], redis_server: RedisServer, store: Store, prefix: str
) -> None:
    """Protocol 1 hides the bell in the encoded body. Steps without a 0 have kombu write to a list of another name."""
    node = f"{prefix}@test"
    with shop(redis_server, prefix) as app, redis_server.client(8) as client:
        app.conf.update(conf)
        assert about_bells(app, store, node) == {}
        assert client.keys(f"*{prefix}*") == []


@pytest.mark.parametrize(
    "url",
    ["memory://", "redis://localhost:{port}/8", "redis://default:@127.0.0.1:{port}/8", "redis://127.0.0.1:1/8",
     "redis://127.0.0.1:{port}/8;redis://127.0.0.1:{port}/7", "sentinel://127.0.0.1:{port}"],
)  # fmt: skip
def test_a_broker_elsewhere_is_rung_by_messages(url: str, redis_server: RedisServer, store: Store, prefix: str) -> None:
    with shop(redis_server, prefix, url.format(port=redis_server.port), broker_connection_timeout=1) as app:
        assert about_bells(app, store, "one@test") == {}
