"""The sorter: when a batch is due, and how it is put in line; its scripts, called by hand."""

import pytest

from coordinator import Coordinator, Sorter
from coordinator.core.store.client import Store
from coordinator.sorters.sorter import natural
from tests.coordinator.sorters.batches import add, flush, names, overdue, signature
from tests.harness.command import Call, listed, loaded, told
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until


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


def test_the_first_step_seals_the_batch_and_a_late_one_joins_the_next(
    coordinator: Coordinator, store: Store, orders: Sorter, node: Puppet
) -> None:
    add(orders, "b", "d", "f", "h")
    overdue(store)
    assert store.step("sorter_flush", 2) == 1
    add(orders, "a", "g")
    (held,) = coordinator.sorters()
    assert (held.collected, held.flushing) == (2, 2)
    assert names(orders.orders()) == ["f", "h", "a", "g"]
    assert coordinator.why("orders/f").codes == ["later.flush"]
    assert coordinator.why("orders/a").codes == ["later.sorter"]
    assert flush(store, 2) == 1
    assert names(coordinator.lane("k").jobs) == ["b", "d", "f", "h"]
    overdue(store)
    flush(store)
    assert names(node.order()) == ["b", "d", "f", "h", "a", "g"]


def test_an_order_whose_record_is_gone_holds_up_no_other(store: Store, orders: Sorter, node: Puppet) -> None:
    add(orders, "a", "b", "c")
    store._client.delete(store.key("job", "orders/b"))
    store._client.srem(store.key("state", "collected"), "orders/b")
    overdue(store)
    assert flush(store) == 1
    assert names(node.order()) == ["a", "c"]


def test_thousands_of_orders_are_flushed_step_by_step(coordinator: Coordinator, store: Store, node: Puppet) -> None:
    sorter = coordinator.sorter("orders", 0.001, order="natural")
    made = signature()
    for number in reversed(range(2_000)):
        sorter.add(str(number), f"key/{number % 100}", made)
    wait_until(lambda: store.step("sorter_flush", 300) == 0 and not coordinator.sorters())
    for key in (0, 99):
        assert names(coordinator.lane(f"key/{key}").jobs) == [str(number) for number in range(key, 2_000, 100)]


def test_an_operator_adds_an_order_and_flushes_the_sorter_without_a_supervisor(call: Call, node: Puppet) -> None:
    for name in ("b", "a"):
        said = told(
            call("sorters", "add", "s", name, "k", "shop.work", "--args", "[1]", "--why", "late", "--by", "ann")
        )
        assert said == f"s/{name} is held by the sorter s"
    assert call("sorters", "add", "s", "a", "k", "shop.work", "--why", "again").exit_code == 1
    assert loaded(call("sorters", "flush", "s", "--why", "now", "--json")) == {"sorter": "s", "orders": 2}
    assert told(call("sorters", "flush", "s", "--why", "now")) == "s holds no orders"
    assert node.order() == ["s/a", "s/b"]
    assert [(one["act"], one["before"]) for one in listed(call("actions", "--json"))] == [
        ("flush", "2"), ("add", ""), ("add", ""),
    ]  # fmt: skip
