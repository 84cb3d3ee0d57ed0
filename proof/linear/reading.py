"""The operations on each object, from what tasks and clients wrote down in a history.

A task writes down when its body begins and ends, not when its process claims and finishes. So a claim takes effect
between the process's note before and the begin, and a finish at any time after the end, or never: its process may be
killed before. A lease ends by itself only if the history has a reason for it, a fault or a process that says no more.

What Redis forgot is not linearizable, and is not promised to be. So a history is cut at each loss: what stood in a line
before it counts as unknown after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from proof.history import AFTER, SECOND, Event, History, Run
from proof.linear.objects import GRAB, LANE, LOCK, quota
from proof.linear.search import Operation, Sequential

BEFORE = 5 * SECOND  # at most so long before its note a failover may have begun
AGAIN = {"chain", "parts", "waits"}  # kinds of jobs that go on after a run that ended well
LEAVES = {"cancelled", "dies", "fails", "parts", "unmet"}  # kinds of jobs that may end otherwise than by a run


class Recorded(NamedTuple):
    """The operations on one object, between two losses."""

    name: str
    sequential: Sequential
    operations: list[Operation]


class _Span(NamedTuple):
    """Events between two losses, by their indices, both included."""

    first: int
    last: int

    def has(self, event: Event) -> bool:
        return self.first <= event.index <= self.last

    def back(self, event: Event | None) -> int | None:
        return event.index if event and self.has(event) else None


class _Reader:
    def __init__(self, history: History) -> None:
        self.history = history
        self.times = [event.time for event in history.events]
        self.last: dict[str, int] = {}
        self.spoke: dict[str, int] = {}  # by process id: when it noted something last, in whichever thread
        self.before: list[int] = []  # by event: the event before it of its process, or -1
        for event in history.events:
            self.before.append(self.last.get(event.process, -1))
            self.last[event.process] = event.index
            self.spoke[event.process.rpartition("/")[2]] = event.time

    @cached_property
    def spans(self) -> list[_Span]:
        """Between a loss and the next, and until processes have heard of it."""
        spans, first = list[_Span](), 0
        for since, until in sorted(self._losses()):
            if (last := bisect_left(self.times, since) - 1) >= first:
                spans.append(_Span(first, last))
            first = max(first, bisect_left(self.times, until))
        return [*spans, _Span(first, len(self.times) - 1)]

    def _losses(self) -> Iterator[tuple[int, int]]:
        for one in self.history.faults:
            if one.lost:
                begun = min(begun for begun, _ in one.lost)
                yield max(begun, one.since - BEFORE), max(one.until, *(end for _, end in one.lost)) + AFTER

    @cached_property
    def jobs(self) -> dict[str, list[Event | None]]:
        """The first request of each job, and the first answer; of an order, when a relay had submitted its job."""
        found: dict[str, list[Event | None]] = {}
        for event in self.history.events:
            if event.f in ("submit", "relayed") and (event.f == "relayed" or event.type != "fail"):
                asked = found.setdefault(str(event.value["job"]), [event, None])
                answers = "relayed" if event.value.get("kind", "order") == "order" else "submit"
                asked[1] = asked[1] or (event if event.f == answers and event.type != "invoke" else None)
        return found

    @cached_property
    def states(self) -> dict[str, str]:
        return {str(event.value["job"]): str(event.value["state"]) for event in self.history.of("job")}

    @cached_property
    def runs(self) -> dict[str, list[Run]]:
        """By lane."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.history.runs:
            for key in filter(self.history.is_lane, run.keys):
                found[key].append(run)
        return found

    def claimed(self, run: Run, span: _Span) -> int:
        """A run's claim is after this event: its process's one before, and its submit."""
        asked = self.jobs.get(run.job, [None])[0]
        return max(span.first, self.before[run.begun.index], asked.index if asked else -1)

    def lapse(self, begun: Event, ended: Event | None, given: tuple[object, ...]) -> Iterator[Operation]:
        """The end of a lease by itself: from when on there is a reason for it."""
        told = ended or begun
        # A body without an end may have been killed; a process that says no more, too, before it finished.
        spoke = self.spoke[begun.process.rpartition("/")[2]]
        is_silent = self.last[begun.process] == told.index and spoke - told.time < self.history.lease * SECOND / 2
        reasons = [told.index + 1] if not ended or is_silent else []
        if (at := self.history.late_from(begun.process, begun.time)) is not None:
            reasons.append(bisect_left(self.times, at))
        if reasons:
            yield Operation(min(reasons), None, "lapse", given, once=True)

    def holds(self, runs: list[Run], span: _Span, names: tuple[str, str], unit: str = "") -> Iterator[Operation]:
        """The claims and the ends of runs, by their fences."""
        for run in (one for one in runs if span.has(one.begun)):
            units = (run.uses[unit],) if unit else ()
            yield Operation(self.claimed(run, span), run.begun.index, names[0], (run.fence, *units))
            if run.ended and span.has(run.ended):
                yield Operation(run.ended.index, None, names[1], (run.fence,), once=True)
            yield from self.lapse(run.begun, run.ended, (run.fence,))

    def line(self, key: str, span: _Span) -> Iterator[Operation]:
        """The jobs of a lane, and who else is at work there."""
        runs = [run for run in self.runs[key] if span.has(run.begun)]
        began, again = {run.job for run in runs}, {run.job: run.begun.index for run in self.runs[key]}
        known = set[str]()
        for job, (asked, answered) in self.jobs.items():
            if not asked or not span.has(asked) or key not in asked.value["keys"]:
                continue
            known.add(job)
            later = "after" in asked.value  # it joins once its causes have ended
            back = None if later or not answered else span.back(answered)
            if back is not None or job in began:
                yield Operation(asked.index, back, "join", (job, int(asked.value.get("priority", 0))))
            if asked.value["kind"] in LEAVES or self.states.get(job) != "succeeded":
                yield Operation(asked.index, None, "leave", (job,), once=True)
        for run in runs:
            name = "start" if run.job in known else "pass"
            yield Operation(self.claimed(run, span), run.begun.index, name, (run.job, run.fence))
            if run.ended and span.has(run.ended):
                asked = self.jobs[run.job][0] if run.job in known else None
                goes_on = run.ended.type == "fail" or bool(asked and asked.value["kind"] in AGAIN)
                stays = goes_on and again[run.job] > run.ended.index
                yield Operation(run.ended.index, None, "end", (run.job, run.fence, stays), once=True)
            yield from self.lapse(run.begun, run.ended, (run.job, run.fence))

    def grabs(self, instance: str, span: _Span) -> Iterator[Operation]:
        events = [event for event in self.history.of("grab") if str(event.value["instance"]) == instance]
        for place, won in enumerate(events):
            if won.type != "invoke" or not span.has(won):
                continue
            given = won.process, int(won.value["fence"])
            own = [one for one in events[place + 1 :] if one.process == won.process]
            ended = own[0] if own and own[0].type != "invoke" else None
            yield Operation(max(span.first, self.before[won.index]), won.index, "win", given)
            back = span.back(ended)
            yield Operation(won.index + 1, back, "complete", given, ended.type == "ok" if ended else None, once=True)
            yield from self.lapse(won, ended, given)


def _recorded(name: str, sequential: Sequential, operations: Iterator[Operation]) -> Iterator[Recorded]:
    if found := list(operations):
        yield Recorded(name, sequential, found)


def lanes(history: History) -> Iterator[Recorded]:
    reader = _Reader(history)
    asked = {key for event in history.of("submit") for key in event.value["keys"] if history.is_lane(key)}
    for span in reader.spans:
        for key in sorted({*asked, *reader.runs}):
            yield from _recorded(f"lane {key}", LANE, reader.line(key, span))


def locks(history: History) -> Iterator[Recorded]:
    """Those that plain code has held, jobs of the same key among it."""
    reader = _Reader(history)
    for span in reader.spans:
        for key, runs in sorted(reader.runs.items()):
            if any("attempt" not in run.begun.value for run in runs):
                yield from _recorded(f"lock {key}", LOCK, reader.holds(runs, span, ("acquire", "release")))


def grabs(history: History) -> Iterator[Recorded]:
    reader = _Reader(history)
    for span in reader.spans:
        for instance in sorted({str(event.value["instance"]) for event in history.of("grab")}):
            yield from _recorded(f"grab {instance}", GRAB, reader.grabs(instance, span))


def quotas(history: History) -> Iterator[Recorded]:
    """Those of units; a rate counts time, which no order of operations tells."""
    reader = _Reader(history)
    for span in reader.spans:
        for name, bounds in sorted(history.about.get("quotas", {}).items()):
            if "units" in bounds:
                runs = [run for run in history.runs if name in run.uses]
                operations = reader.holds(runs, span, ("take", "give"), name)
                yield from _recorded(f"quota {name}", quota(bounds["units"]), operations)
