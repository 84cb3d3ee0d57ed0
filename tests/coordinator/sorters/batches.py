"""Sorters played by hand: orders added, the time passed, each step of a flush called."""

from typing import Any

from coordinator import Sorter
from coordinator.core.store.client import Store


def signature(name: str = "shop.work", **options: Any) -> dict[str, Any]:
    return {"task": name, "args": [], "kwargs": {}, "options": options}


def add(sorter: Sorter, *order_ids: str, key: str = "k") -> None:
    for order_id in order_ids:
        sorter.add(order_id, key, signature(), if_unknown="wait")


def overdue(store: Store, name: str = "orders") -> None:
    """As if the time until its flush had passed."""
    store._client.hset(store.key("sorter", name), "due", 1)
    store._client.zadd(store.key("sorters"), {name: 1})


def flush(store: Store, most: int = 300, steps: int = 1000) -> int:
    """How many steps were made; each lets go of `most`."""
    for number in range(1, steps + 1):
        if not store.step("sorter_flush", most):
            return number
    return steps


def names(ids: list[str] | tuple[str, ...]) -> list[str]:
    return [one.partition("/")[2] for one in ids]
