"""The sorter: what comes in any order is held, and put in line sorted; its scripts, called by hand."""

import itertools
import time
from typing import Any

import pytest

from coordinator import Coordinator, DuplicateOrder, InvalidJob, Sorter, StoreUnavailable
from coordinator.sorter import natural
from coordinator.store import Store
from tests.puppet import Puppet
from tests.waiting import wait_until


def signature(name: str = "shop.work", **options: Any) -> dict[str, Any]:
    return {"task": name, "args": [], "kwargs": {}, "options": options}


def add(sorter: Sorter, *order_ids: str, key: str = "k") -> None:
    for order_id in order_ids:
        sorter.add(order_id, key, signature())


def overdue(store: Store, name: str = "orders") -> None:
    """As if the time until its flush had passed."""
    store.client.hset(store.key("sorter", name), "due", 1)
    store.client.zadd(store.key("sorters"), {name: 1})


def flush(store: Store, most: int = 300, steps: int = 1000) -> int:
    """How many steps were made; each lets go of `most`."""
    for number in range(1, steps + 1):
        if not store.run("sorter_flush", most)[0]:
            return number
    return steps


def names(ids: list[str] | tuple[str, ...]) -> list[str]:
    return [one.partition("/")[2] for one in ids]


@pytest.fixture
def store(coordinator: Coordinator) -> Store:
    return coordinator.store


@pytest.fixture
def orders(coordinator: Coordinator) -> Sorter:
    return coordinator.sorter("orders")


def test_an_order_is_held_visible_and_in_no_line(coordinator: Coordinator, orders: Sorter, node: Puppet) -> None:
    made = orders.add("9", "k", signature())
    assert (made.job_id, made.outcome, made.position, made.accepted) == ("orders/9", "collected", -1, True)
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
    (said,) = coordinator.why("orders/9")
    assert said.startswith("job orders/9 is held by the sorter 'orders' until no more come: 20")
    coordinator.cancel("orders/9")


@pytest.mark.parametrize(
    ("order", "sorted_"),
    [
        ("alphabetical", ["10", "2", "9", "a", "a10", "a2", "a2b", "b", "é"]),
        ("natural", ["2", "9", "10", "a", "a2", "a2b", "a10", "b", "é"]),
    ],
)
def test_a_batch_goes_in_line_in_the_order_of_its_ids(
    coordinator: Coordinator, node: Puppet, order: str, sorted_: list[str]
) -> None:
    sorter = coordinator.sorter("orders", order=order)
    add(sorter, *["a2b", "9", "10", "é", "a10", "2", "b", "a", "a2"])
    assert names(sorter.orders()) == sorted_
    overdue(coordinator.store)
    assert flush(coordinator.store) == 1
    assert names(coordinator.lane("k").jobs) == sorted_
    assert names(node.order()) == sorted_
    assert coordinator.sorters() == []


def test_natural_order_knows_leading_zeros_and_long_numbers() -> None:
    given = ["7", "07", "007", "8", "0", "00", "x", "1" * 300, "2" * 299, "a-1", "a1", "aa", "v1.10", "v1.9"]
    found = sorted(given, key=lambda text: natural(text) + "\0" + text)
    assert found == ["0", "00", "007", "07", "7", "8", "2" * 299, "1" * 300, "a-1", "a1", "aa", "v1.9", "v1.10", "x"]


def test_it_is_due_the_idle_time_after_the_last_and_at_most_max_wait_after_the_first(
    coordinator: Coordinator, store: Store
) -> None:
    def due() -> float:
        (held,) = coordinator.sorters()
        assert held.due
        assert held.first
        return (held.due - held.first).total_seconds()

    first = store.key("sorter", "orders")
    add(coordinator.sorter("orders", 10), "1")
    assert due() == 10
    store.client.hincrby(first, "first", -8000)  # 8 s have passed
    add(coordinator.sorter("orders", 10), "2")
    assert 18 <= due() < 18.5
    add(coordinator.sorter("orders", 10, max_wait=15), "3")
    assert due() == 15, "the last one to add decides"
    add(coordinator.sorter("orders", 3, max_wait=15), "4")
    assert 11 <= due() < 11.5
    for order_id in "1234":
        coordinator.cancel(f"orders/{order_id}")


def test_whoever_comes_between_the_instant_and_the_look_does_not_put_it_off(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    add(orders, "b")
    overdue(store)
    add(orders, "a")
    assert store.client.zscore(store.key("sorters"), "orders") == 1
    flush(store)
    assert names(node.order()) == ["a", "b"]


def test_nothing_is_flushed_before_it_is_due(store: Store, orders: Sorter, node: Puppet) -> None:
    add(orders, "a")
    assert store.run("sweep", 0, 60000, 2000)[4] == 0
    assert store.run("sorter_flush", 300) == [0, []]
    assert node.order() == []
    overdue(store)
    assert store.run("sweep", 0, 60000, 2000)[4] == 1
    assert flush(store) == 1
    assert names(node.order()) == ["a"]


def test_the_first_step_seals_the_batch_and_a_late_one_joins_the_next(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    add(orders, "b", "d", "f", "h")
    overdue(store)
    assert store.run("sorter_flush", 2)[0] == 1
    add(orders, "a", "g")
    (held,) = coordinator.sorters()
    assert (held.collected, held.flushing) == (2, 2)
    assert names(orders.orders()) == ["f", "h", "a", "g"]
    assert coordinator.why("orders/f") == [
        "job orders/f is among the orders that the sorter 'orders' is putting in line"
    ]
    assert "until no more come" in coordinator.why("orders/a")[0]
    assert flush(store, 2) == 1
    assert names(coordinator.lane("k").jobs) == ["b", "d", "f", "h"]
    overdue(store)
    flush(store)
    assert names(node.order()) == ["b", "d", "f", "h", "a", "g"]


def test_a_batch_that_became_due_again_while_it_was_flushed_is_two_batches(
    store: Store, orders: Sorter, node: Puppet
) -> None:
    add(orders, "c", "d")
    overdue(store)
    store.run("sorter_flush", 1)
    add(orders, "a", "b")
    store.client.hset(store.key("sorter", "orders"), "due", 1)
    assert flush(store, 1) == 3
    assert names(node.order()) == ["c", "d", "a", "b"]


@pytest.mark.parametrize("steps", range(1, 5))
def test_whoever_goes_on_after_a_crash_between_two_steps_finds_what_is_left(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet, steps: int
) -> None:
    given = [f"{number:02}" for number in range(10)]
    add(orders, *reversed(given))
    overdue(store)
    assert flush(store, 3, steps) == steps
    other = Coordinator(url=coordinator.settings.url, prefix=coordinator.settings.prefix)
    flush(other.store, 4)
    other.store.close()
    assert names(node.order()) == given
    assert coordinator.counts()["created"] == coordinator.counts()["succeeded"] == 10


def test_two_that_flush_at_once_put_each_order_in_line_once(store: Store, orders: Sorter, node: Puppet) -> None:
    given = [f"{number:03}" for number in range(100)]
    add(orders, *reversed(given))
    overdue(store)
    for _, most in zip(range(40), itertools.cycle([1, 7]), strict=False):
        store.run("sorter_flush", most)
    assert names(node.order()) == given


def test_two_sorters_never_mix(coordinator: Coordinator, store: Store, node: Puppet) -> None:
    one, two = coordinator.sorter("one"), coordinator.sorter("two", 20)
    for order_id in ("c", "a", "b"):
        one.add(order_id, "k1", signature())
        two.add(order_id, "k2", signature())
    assert [held.name for held in coordinator.sorters()] == ["one", "two"]
    overdue(store, "one")
    flush(store)
    assert node.order() == ["one/a", "one/b", "one/c"]
    assert two.orders() == ("two/a", "two/b", "two/c")
    overdue(store, "two")
    flush(store)
    assert node.order() == ["two/a", "two/b", "two/c"]


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


def test_an_order_asked_for_again_with_its_token_is_the_same_order(store: Store, orders: Sorter, node: Puppet) -> None:
    for _ in range(2):
        assert orders.add("a", "k", signature(), token="mine").outcome == "collected"
    overdue(store)
    flush(store)
    assert orders.add("a", "k", signature(), token="mine").outcome == "collected"
    with pytest.raises(DuplicateOrder):
        orders.add("a", "k", signature(), token="another's")
    assert names(node.order()) == ["a"]


def test_after_a_lost_reply_the_same_process_just_asks_again(
    coordinator: Coordinator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.run

    def lost(*args: Any, **more: Any) -> Any:
        run(*args, **more)
        raise StoreUnavailable("no answer", more["job_id"])

    monkeypatch.setattr(store, "run", lost)
    with pytest.raises(StoreUnavailable) as told:
        coordinator.sorter("orders").add("a", "k", signature())
    assert told.value.job_id == "orders/a"
    monkeypatch.undo()
    again = coordinator.sorter("orders")
    assert again.add("a", "k", signature()).outcome == "collected"
    with pytest.raises(DuplicateOrder):
        again.add("a", "k", signature())
    coordinator.cancel("orders/a")


def test_a_cancelled_order_is_in_no_batch_and_the_last_one_takes_the_sorter_with_it(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    add(orders, "a", "b", "c", "d")
    assert coordinator.cancel("orders/b", why="no need") == "cancelled"
    assert names(orders.orders()) == ["a", "c", "d"]
    overdue(store)
    store.run("sorter_flush", 1)
    coordinator.cancel("orders/c")
    coordinator.cancel("orders/d")
    assert coordinator.sorters() == []
    assert store.client.exists(store.key("sorters"), store.key("sorter", "orders"), store.key("batch", "orders")) == 0
    assert names(node.order()) == ["a"]
    assert coordinator.retry("orders/b") == "ready"
    assert names(node.order()) == ["b"]


def test_what_comes_after_all_were_cancelled_is_a_first_one(coordinator: Coordinator, store: Store) -> None:
    sorter = coordinator.sorter("orders", 5, max_wait=10)
    add(sorter, "a")
    store.client.hincrby(store.key("sorter", "orders"), "first", -9000)
    coordinator.cancel("orders/a")
    add(sorter, "b")
    (held,) = coordinator.sorters()
    assert held.first
    assert held.due
    assert (held.due - held.first).total_seconds() == 5
    coordinator.cancel("orders/b")


def test_cancelling_the_rest_of_a_batch_leaves_the_next_one_its_time(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    add(orders, "a", "b")
    overdue(store)
    store.run("sorter_flush", 1)
    add(orders, "late")
    coordinator.cancel("orders/b")
    assert store.run("sorter_flush", 300) == [0, []]
    assert names(node.order()) == ["a"]
    coordinator.cancel("orders/late")


def test_an_order_may_have_several_keys_a_priority_a_start_and_an_end(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    start = time.time() + 3600
    orders.add("a", ["k", "l"], signature())
    orders.add("b", "l", signature(), priority=5)
    orders.add("c", "k", signature(eta=f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(start))}+00:00"))
    orders.add("d", "k", signature(expires=3600))
    store.client.zadd(store.key("expiry"), {"orders/d": 1})
    node.sweep()
    assert coordinator.job("orders/d").state == "expired"
    overdue(store)
    flush(store)
    assert coordinator.job("orders/c").state == "scheduled"
    assert coordinator.lane("k").jobs == ("orders/a",)
    assert coordinator.lane("l").jobs == ("orders/a", "orders/b"), "who stands in front already stays there"
    assert names(node.order()) == ["a", "b"]
    store.client.zadd(store.key("due"), {"orders/c": 1})
    node.sweep()
    assert names(node.order()) == ["c"]


def test_priority_goes_before_the_order_of_the_batch(store: Store, orders: Sorter, node: Puppet) -> None:
    node.submit("k", job_id="first")
    for order_id, priority in (("a", -1), ("b", 0), ("c", 7)):
        orders.add(order_id, "k", signature(), priority=priority)
    overdue(store)
    flush(store)
    assert node.order() == ["first", "orders/c", "orders/b", "orders/a"]


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
        ("a", {"job_id": "x"}, "job_id: of an order"),
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
    assert list(store.client.scan_iter(store.prefix.replace("[", "\\[") + "*")) == []


def test_ten_thousand_orders_are_in_line_within_ten_seconds(
    coordinator: Coordinator, store: Store, node: Puppet
) -> None:
    began = time.monotonic()
    sorter = coordinator.sorter("orders", 0.001, order="natural")
    made = signature()
    for number in reversed(range(10_000)):
        sorter.add(str(number), f"key/{number % 100}", made)
    added = time.monotonic()
    wait_until(lambda: store.run("sorter_flush", 300)[0] == 0 and not coordinator.sorters(), 10)
    print(f"added in {added - began:.1f} s, flushed in {time.monotonic() - added:.2f} s")
    assert time.monotonic() - began < 10
    for key in (0, 99):
        assert names(coordinator.lane(f"key/{key}").jobs) == [str(number) for number in range(key, 10_000, 100)]
