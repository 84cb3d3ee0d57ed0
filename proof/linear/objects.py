"""What each object does, one thing at a time. A step yields the states to which an operation may lead; where its answer
is not what the object would have said, none."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from proof.linear.search import Operation, Sequential


def _register(state: Any, operation: Operation) -> Iterator[Hashable]:
    match operation.name, operation.given:
        case "write", (value,):
            yield value
        case "read", () if operation.may_answer(state):
            yield state


def register(value: Hashable) -> Sequential:
    """`write(value)`, and `read`, which answers the last one."""
    return Sequential(value, _register)


def _queue(state: Any, operation: Operation) -> Iterator[Hashable]:
    match operation.name, operation.given:
        case "enqueue", (value,):
            yield (*state, value)
        case "dequeue", () if state and operation.may_answer(state[0]):
            yield state[1:]


QUEUE = Sequential((), _queue)
"""`enqueue(value)`, and `dequeue`, which answers the first one. It is here for the papers' examples."""


class Lock(NamedTuple):
    """`held`: by whoever has this fence, 0: nobody. `last`: the last fence."""

    held: int = 0
    last: int = 0


def _lock(state: Any, operation: Operation) -> Iterator[Hashable]:
    held, last = state
    match operation.name, operation.given:
        case "acquire", (fence,) if not held and fence > last:
            yield Lock(fence, fence)
        case "check", (fence,) if operation.may_answer(held == fence):
            yield state
        case "release", (fence,) if operation.may_answer(held == fence):
            yield Lock(0, last) if held == fence else state
        case "lapse", (fence,) if held == fence:
            yield Lock(0, last)


LOCK = Sequential(Lock(), _lock)
"""`acquire(fence)`: it gave this fence, which only grows. `check(fence)` and `release(fence)` answer True if this one
holds the lock. `lapse(fence)`: the lease of this one ends by itself."""


class Grab(NamedTuple):
    """`winner`, `fence`: who works on the instance, '': nobody. `last`: the last fence."""

    winner: str = ""
    fence: int = 0
    last: int = 0
    complete: bool = False


def _grab(state: Any, operation: Operation) -> Iterator[Hashable]:
    match operation.name, operation.given:
        case "win", (who, fence) if not state.complete:
            if state.winner == who and state.fence == fence:
                yield state
            elif state.winner in ("", who) and fence > state.last:
                yield Grab(who, fence, fence)
        case "complete", (who, fence):
            if operation.may_answer(state[:2] == (who, fence)):
                yield Grab("", 0, state.last, True) if state[:2] == (who, fence) else state
        case "lapse", (who, fence) if state[:2] == (who, fence):
            yield Grab("", 0, state.last)


GRAB = Sequential(Grab(), _grab)
"""One instance. `win(who, fence)`: of those that ask, this one works on it; asked again, it is told so again, or has a
new fence. `complete(who, fence)` answers True if it still does: then nobody wins any more. `lapse(who, fence)`: its
lease ends by itself."""


class Lane(NamedTuple):
    """`line`: priority and name of each job that is not over. `started`: the first of the line has started, so that it
    keeps its place. `holder`: the job at work, and its fence. `last`: the last fence."""

    line: tuple[tuple[int, str], ...] = ()
    started: bool = False
    holder: tuple[str, int] | None = None
    last: int = 0

    def joined(self, job: str, priority: int) -> Lane:
        place = sum(at < self.started or one >= priority for at, (one, _) in enumerate(self.line))
        return self._replace(line=(*self.line[:place], (priority, job), *self.line[place:]))

    def left(self, job: str) -> Lane:
        line = tuple(one for one in self.line if one[1] != job)
        holder = None if self.holder and self.holder[0] == job else self.holder
        return self._replace(line=line, started=self.started and self.line[0][1] != job, holder=holder)

    def waits(self, job: str) -> bool:
        return any(one == job for _, one in self.line)


def _lane(state: Any, operation: Operation) -> Iterator[Hashable]:
    match operation.name, operation.given:
        case "join", (job, priority) if not state.waits(job):
            yield state.joined(job, priority)
        case "start", (job, fence) if not state.holder and fence > state.last:
            if state.line[:1] and state.line[0][1] == job:
                yield state._replace(started=True, holder=(job, fence), last=fence)
        case "pass", (who, fence) if not state.holder and not state.started and fence > state.last:
            yield state._replace(holder=(who, fence), last=fence)
        case "end", (job, fence, stays) if state.holder == (job, fence):
            yield state.left(job)
            if stays:
                yield state._replace(holder=None)
        case "lapse", (job, fence) if state.holder == (job, fence):
            yield state._replace(holder=None)
        case "leave", (job,) if state.waits(job):
            yield state.left(job)


LANE = Sequential(Lane(), _lane)
"""A line in the order of sequence within a priority, and its lock.

* `join(job, priority)`: the job stands in the line, behind those of its priority.
* `start(job, fence)`: the first is at work; a greater priority no longer passes it.
* `end(job, fence, stays)`: its run is over, and it leaves; or, where it may, it stays for another.
* `lapse(job, fence)`: its lease ends by itself, and it keeps its place.
* `leave(job)`: it leaves without a run, as a cancelled one does.
* `pass(who, fence)`: one is at work of whom no place in the line is known: plain code, or a job of before the history.
"""


def quota(units: int) -> Sequential:
    """`take(fence, units)`: never more than there are. `give(fence)`, or by itself `lapse(fence)`: they come back."""

    def step(state: Any, operation: Operation) -> Iterator[Hashable]:
        match operation.name, operation.given:
            case "take", (fence, number) if sum(used for _, used in state) + number <= units:
                yield state | {(fence, number)}
            case (("give" | "lapse"), (fence,)):
                yield frozenset(one for one in state if one[0] != fence)

    return Sequential(frozenset(), step)
