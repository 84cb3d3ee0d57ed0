"""What a sorter holds: orders that are seen, asked for twice, cancelled, refused."""

import time
from typing import Any

import pytest

from coordinator import (
    Coordinator,
    DuplicateOrder,
    InvalidJob,
    Sorter,
    StoreRefused,
    StoreUnavailable,
    UnknownQuota,
)
from coordinator.core.store.client import Store
from tests.coordinator.conftest import ClientAt
from tests.coordinator.sorters.batches import add, flush, names, overdue, signature
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer


def test_an_order_is_held_visible_and_in_no_line(coordinator: Coordinator, orders: Sorter, node: Puppet) -> None:
    made = orders.add("9", "k", signature())
    assert (made.id, made.outcome, made.position, made.accepted) == ("orders/9", "collected", -1, True)
    job = coordinator.job("orders/9")
    assert (job.state, job.key, job.task) == ("collected", "k", "shop.work")
    assert coordinator.lanes() == []
    assert (coordinator.counts()["collected"], coordinator.counts()["waiting"]) == (1, 0)
    assert node.take() is None
    (held,) = coordinator.sorters()
    assert (held.name, held.collected, held.flushing) == ("orders", 1, 0)
    assert held.first
    assert held.due
    assert 9.9 < (held.due - held.first).total_seconds() < 10.1
    (cause,) = coordinator.why("orders/9").causes
    assert cause.text.startswith("orders/9 is held by the sorter orders until no more come: 20")
    coordinator.cancel("orders/9")


def test_equal_ids_are_refused_as_long_as_the_order_is_kept(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    def refused() -> None:
        with pytest.raises(DuplicateOrder) as told:
            orders.add("a", "other", signature())
        assert told.value.job_id == "orders/a"

    add(orders, "a")
    refused()
    overdue(store)
    flush(store)
    refused()
    assert names(node.order()) == ["a"]
    refused()
    assert coordinator.job("orders/a").key == "k"
    node.submit("k", job_id="orders/b")
    with pytest.raises(DuplicateOrder):
        orders.add("b", "k", signature())
    node.order()


def test_after_a_lost_reply_the_same_process_just_asks_again(
    coordinator: Coordinator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = store.step

    def lost(*args: Any, **more: Any) -> Any:
        step(*args, **more)
        raise StoreUnavailable("no answer", more["job_id"])

    monkeypatch.setattr(store, "step", lost)
    with pytest.raises(StoreUnavailable) as told:
        coordinator.sorter("orders").add("a", "k", signature(), if_unknown="wait")
    assert told.value.job_id == "orders/a"
    monkeypatch.undo()
    again = coordinator.sorter("orders")
    assert again.add("a", "k", signature(), if_unknown="wait").outcome == "collected"
    with pytest.raises(DuplicateOrder):
        again.add("a", "k", signature(), if_unknown="wait")
    coordinator.cancel("orders/a")


def test_an_order_may_have_several_keys_a_priority_a_start_and_an_end(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    start = time.time() + 3600
    orders.add("a", ["k", "l"], signature())
    orders.add("b", "l", signature(), priority=5)
    orders.add("c", "k", signature(eta=f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(start))}+00:00"))
    orders.add("d", "k", signature(expires=3600))
    store._client.zadd(store.key("expiry"), {"orders/d": 1})
    node.sweep()
    assert coordinator.job("orders/d").state == "expired"
    overdue(store)
    flush(store)
    assert coordinator.job("orders/c").state == "scheduled"
    assert coordinator.lane("k").jobs == ("orders/a",)
    assert coordinator.lane("l").jobs == ("orders/a", "orders/b"), "who stands in front already stays there"
    assert names(node.order()) == ["a", "b"]
    store._client.zadd(store.key("starts"), {"orders/c": 1})
    node.sweep()
    assert names(node.order()) == ["c"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"idle_timeout": 0}, "idle_timeout is seconds above 0"),
        ({"idle_timeout": None}, "idle_timeout is seconds above 0"),
        ({"idle_timeout": float("nan")}, "idle_timeout is seconds above 0"),
        ({"idle_timeout": True}, "idle_timeout is seconds above 0"),
        ({"max_wait": -1}, "max_wait is seconds above 0"),
        ({"order": "random"}, "order 'random': one of alphabetical, natural"),
        ({"name": ""}, "sorter ''"),
        ({"name": "a/b"}, "sorter 'a/b'"),
        ({"name": "a\nb"}, r"sorter 'a\\nb'"),
        ({"name": "a" * 101}, "sorter 'aaa"),
    ],
)
def test_a_sorter_that_cannot_work_is_refused(coordinator: Coordinator, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        coordinator.sorter(**{"name": "orders", **given})


@pytest.mark.parametrize(
    ("order_id", "options", "says"),
    [
        ("", {}, "order_id ''"),
        ("a\0b", {}, "order_id"),
        ("\udcff", {}, "order_id"),
        (7, {}, "order_id 7"),
        ("é" * 260, {}, "order_id .* too long"),
        ("a", {"job_id": "x"}, "job_id: an order's job id"),
        ("a", {"when_busy": "skip"}, "when_busy='skip'"),
        ("a", {"colour": "red"}, "colour"),
        ("a", {"key": ""}, "a key is text"),
        ("a", {"signature": {"task": 1}}, "not a signature"),
    ],
)
def test_an_order_that_cannot_work_is_refused_and_nothing_is_written(
    coordinator: Coordinator, store: Store, orders: Sorter, order_id: Any, options: dict[str, Any], says: str
) -> None:
    given = {"key": "k", "signature": signature(), **options}
    with pytest.raises(InvalidJob, match=says):
        orders.add(order_id, given.pop("key"), given.pop("signature"), **given)
    assert list(store._client.scan_iter(store.prefix.replace("[", "\\[") + "*")) == []


def test_a_full_redis_refuses_an_order_and_lets_go_of_those_it_has(own_redis: RedisServer, client_at: ClientAt) -> None:
    coordinator = client_at(own_redis.url(0))
    node, sorter = Puppet(coordinator.store), coordinator.sorter("orders")
    node.up()
    add(sorter, "b")
    sorter.add("a", "k", signature(), token="mine")
    overdue(coordinator.store)
    with own_redis.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreRefused):
            add(sorter, "c")
        assert sorter.add("a", "k", signature(), token="mine").outcome == "collected", "it was done before"
        assert coordinator.cancel("orders/b") == "cancelled"
        flush(coordinator.store)
        taken = node.must_take(bell=node.rung()[0])
        assert names([taken.id]) == ["a"]
        node.finish(taken)
        client.config_set("maxmemory", 0)
    assert (coordinator.counts()["created"], coordinator.sorters()) == (2, [])


def test_an_order_that_uses_a_quota_which_nobody_declared_is_refused_by_name(
    coordinator: Coordinator, orders: Sorter
) -> None:
    coordinator.quota("q", concurrency=1)
    for uses, error in (("p", UnknownQuota), ({"q": 2}, InvalidJob)):
        with pytest.raises(error):
            orders.add("a", "k", signature(), uses=uses, if_unknown="wait")
    assert coordinator.counts().get("created") == 0
    orders.add("a", "k", signature(), uses="q", if_unknown="wait")
    coordinator.cancel("orders/a")
