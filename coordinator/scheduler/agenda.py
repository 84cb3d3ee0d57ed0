"""Sorts the plans of a beat by when it must look at each next."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from math import inf

from coordinator.scheduler.due import DueEntry


class Agenda:
    """A heap of plans. An outdated place of a plan stays in the heap, and is dropped when its time comes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, DueEntry]] = []
        self._when: dict[
            int, tuple[float, DueEntry]
        ] = {}  # id(plan) -> its place, and the plan, which keeps the id alive
        self._count = 0

    def __len__(self) -> int:
        return len(self._when)

    def fill(self, plans: Iterable[tuple[float, DueEntry]]) -> None:
        """Replace all plans."""
        self._when = {id(plan): (at, plan) for at, plan in plans}
        self._heap = [(at, number, plan) for number, (at, plan) in enumerate(self._when.values())]
        self._count = len(self._heap)
        heapq.heapify(self._heap)

    def put(self, at: float, plan: DueEntry) -> None:
        self._when[id(plan)] = at, plan
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, plan))

    def remove(self, plan: DueEntry) -> None:
        self._when.pop(id(plan), None)

    def take(self, now: float, most: int) -> list[DueEntry]:
        """Take out at most `most` entries whose next instant has come, the earliest first."""
        plans: list[DueEntry] = []
        while self._heap and self._heap[0][0] <= now and len(plans) < most:
            at, _, plan = heapq.heappop(self._heap)
            if self._when.get(id(plan), (None,))[0] == at:
                del self._when[id(plan)]
                plans.append(plan)
        return plans

    def next(self) -> float:
        return self._heap[0][0] if self._heap else inf
