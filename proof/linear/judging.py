"""The decisions on all objects of a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proof.history import History
from proof.linear import search
from proof.linear.reading import Recorded, grabs, lanes, locks, quotas
from proof.linear.search import Answer, Decision, decide

Objects = Callable[[History], Iterator[Recorded]]
ALL: tuple[Objects, ...] = (lanes, locks, grabs, quotas)


def decisions(history: History, objects: Objects) -> Iterator[tuple[Recorded, Decision]]:
    for one in objects(history):
        yield one, decide(one.sequential, one.operations, search.MOST)


def counted(history: History) -> tuple[int, int]:
    """How many operations were decided, and how many were not."""
    decided, undecided = 0, 0
    for objects in ALL:
        for one, decision in decisions(history, objects):
            if decision.answer is Answer.UNKNOWN:
                undecided += len(one.operations)
            else:
                decided += len(one.operations)
    return decided, undecided
