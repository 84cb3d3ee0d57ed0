"""Whether operations that overlap are linearizable: each seems to take effect at one instant between its call and its
return, and all of them in that order are what a sequential object does (Herlihy and Wing, 1990).

The search is Wing and Gong's (1993) as Lowe improved it (2017): it goes through calls and returns as they came. It lets
an operation take effect only when one returns that has not yet (just in time), and knows each configuration it has met:
the state of the object, and which of the open operations have taken effect in it. Objects of different keys are decided
apart: linearizability is local.

An operation without a return is pending: it may take effect at any time after its call, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

MOST = 200_000  # configurations of one object: a long line on a busy machine has needed 111,000


class Operation(NamedTuple):
    """`call`, `back`: its places in the history; no `back`: it is pending. `given`: its arguments. `answer`: what it
    returned, of no meaning while it is pending. `once`: the object itself lets a pending one take effect once at most,
    as a release by its token, so that the search need not remember it.
    """

    call: int
    back: int | None
    name: str
    given: tuple[Any, ...] = ()
    answer: Hashable = None
    once: bool = False

    def may_answer(self, value: Hashable) -> bool:
        return self.back is None or self.answer == value


class Sequential(NamedTuple):
    """An object that does one thing at a time: its first state, and the states that an operation may lead to, none
    where it cannot be answered as it was."""

    start: Hashable
    step: Callable[[Hashable, Operation], Iterable[Hashable]]


class Answer(StrEnum):
    YES = "linearizable"
    NO = "not linearizable"
    UNKNOWN = "not decided"


class Decision(NamedTuple):
    """`at`: the operation by whose return no order was left, or at which the search gave up. `met`: configurations."""

    answer: Answer
    at: Operation | None
    met: int


Configuration = tuple[Hashable, frozenset[int]]


def decide(sequential: Sequential, operations: list[Operation], most: int = MOST) -> Decision:
    """`most`: after so many configurations the answer is UNKNOWN."""
    configurations: set[Configuration] = {(sequential.start, frozenset())}
    opened: set[int] = set()
    met = 1
    for number, is_return in _order(operations):
        operation = operations[number]
        if not is_return:
            opened.add(number)
            continue
        configurations, new = _returned(sequential, operations, opened, configurations, number, most - met)
        met += new
        if met >= most:
            return Decision(Answer.UNKNOWN, operation, met)
        if not configurations:
            return Decision(Answer.NO, operation, met)
        opened.remove(number)
    return Decision(Answer.YES, None, met)


def _order(operations: list[Operation]) -> Iterator[tuple[int, bool]]:
    """The operations' numbers as they are called and return; at one place the calls come first."""
    calls = [(one.call, False, number) for number, one in enumerate(operations)]
    backs = [(one.back, True, number) for number, one in enumerate(operations) if one.back is not None]
    for _, is_return, number in sorted(calls + backs):
        yield number, is_return


def _returned(
    sequential: Sequential, operations: list[Operation], opened: set[int], before: set[Configuration], number: int,
    most: int,
) -> tuple[set[Configuration], int]:  # fmt: skip
    """The configurations in which the operation of this number has taken effect, and how many new ones were met."""
    found: set[Configuration] = set()
    known, left = set(before), [*before]
    while left and len(known) - len(before) < most:
        state, done = left.pop()
        if number in done:
            found.add((state, done - {number}))
            continue
        for other in opened - done:
            operation = operations[other]
            for after in sequential.step(state, operation):
                is_pending = operation.back is None
                if is_pending and after == state:
                    continue
                configuration = after, done if is_pending and operation.once else done | {other}
                if configuration not in known:
                    known.add(configuration)
                    left.append(configuration)
    return found, len(known) - len(before)
