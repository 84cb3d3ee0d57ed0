"""Sorters in memory, for `coordinator.testing`. No time passes here: a test lets orders go with `flush`."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.memory import Memory
from coordinator.sorter import Order, Sorters, Sorting


class SortersInMemory(Sorters):
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._seen: dict[str, dict[bytes, str]] = {}

    def hold(self, order: Order, token: str | None = None) -> str:
        seen = self._seen.setdefault(order.sorter, {})
        if order.path and seen.get(order.path) == order.identity:
            return "seen"
        if not self._memory.collect(order.draft, {"sorter": f"{order.sorter}\n{order.sort_key}", "asked": token or ""}):
            again = token is not None and self._memory.field(order.draft.id, "asked") == token
            return "collected" if again else "duplicate"
        if order.path:
            seen[order.path] = order.identity
        return "collected"

    def all(self) -> list[Sorting]:
        return [self.look(name) for name in self._memory.collected()]

    def look(self, name: str) -> Sorting:
        return Sorting(name, len(self._memory.collected().get(name, ())), 0, None, None)

    def orders(self, name: str, most: int) -> list[str]:
        return self._memory.collected().get(name, [])[:most]

    def remembered(self, name: str) -> dict[bytes, str]:
        return dict(self._seen.get(name, {}))

    def forget(self, name: str, files: Mapping[bytes, str]) -> None:
        for path, identity in files.items():
            if self._seen[name].get(path) == identity:
                del self._seen[name][path]
