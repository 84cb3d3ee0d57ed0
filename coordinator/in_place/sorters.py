"""Sorters in memory, for `coordinator.in_place`. No time passes here: a test lets orders go with `flush`."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.in_place.lanes import Memory
from coordinator.lanes.sorter import Order, Sorters, Sorting
from coordinator.store.times import instant


class SortersInMemory(Sorters):
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._seen: dict[str, dict[bytes, str]] = {}

    def hold(self, order: Order, token: str | None = None) -> str:
        seen = self._seen.setdefault(order.sorter, {})
        if order.path and seen.get(order.path) == order.identity:
            return "seen"
        if not self._memory.collect(
            order.request, {"sorter": f"{order.sorter}\n{order.sort_key}", "asked": token or ""}
        ):
            asked = self._memory.rules.records[order.request.id].get("asked")
            return "collected" if token and asked == token else "duplicate"
        if order.path:
            seen[order.path] = order.identity
        return "collected"

    def all(self) -> list[Sorting]:
        return [self.look(name) for name in self._memory.collected()]

    def look(self, name: str) -> Sorting:
        held = self._memory.collected().get(name, [])
        came = (self._memory.rules.records[one]["submitted"] for one in held)
        return Sorting(name, len(held), 0, instant(min(came, default=None)), None)

    def orders(self, name: str, most: int) -> list[str]:
        return self._memory.collected().get(name, [])[:most]

    def remembered(self, name: str) -> dict[bytes, str]:
        return dict(self._seen.get(name, {}))

    def forget(self, name: str, files: Mapping[bytes, str]) -> None:
        seen = self._seen.get(name, {})
        for path, identity in files.items():
            if seen.get(path) == identity:
                del seen[path]
