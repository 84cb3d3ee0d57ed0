"""Reads how many jobs ended in the last hour and day, and the same minute by minute for charts.

A sweep notes the counts once a minute (rules/history.lua). All here are differences of such samples, so that they hold
whatever is kept of the jobs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from kombu.utils.json import loads

from coordinator.jobs import record
from coordinator.jobs.record import TERMINAL
from coordinator.store.client import Store
from coordinator.store.times import ClockReading, instant

HOUR, DAY = 3_600_000, 86_400_000
BADLY = ("failed", "rolled_back", "double_fault", "expired")
_Counts = tuple[int, Mapping[str, int]]  # ms, and what `counts` gave then


@dataclass(frozen=True, slots=True)
class Span:
    """What happened from `since`, for `seconds`. `counts`: how many were created, ended in each outcome, and so on.

    `states`: how many jobs were in each state at its end.
    """

    since: datetime
    seconds: float
    counts: Mapping[str, int]
    states: Mapping[str, int]

    @property
    def ended(self) -> int:
        return sum(self.counts[state] for state in TERMINAL)

    @property
    def failed(self) -> int:
        """Ended by a fault, and not by a person: failed, rolled_back, double_fault, expired."""
        return sum(self.counts[state] for state in BADLY)

    @property
    def per_second(self) -> float:
        """Jobs that ended in a second."""
        return self.ended / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The last hour and the last day, or as much of them as was counted, and each minute of the day, the oldest first.

    A minute in which no node lived is a part of the span after it.
    """

    hour: Span
    day: Span
    minutes: tuple[Span, ...]


def rates_of(store: Store) -> Rates:
    """Read the rates, in one round trip."""
    steps = [store.looking(name) for name in ("clock_read", "counts_read")]
    lines, clock, counts = store.read_many([("LRANGE", store.key("samples"), "0", "-1"), *steps])
    samples = [(int(at), loads(text)) for at, _, text in (line.partition(b" ") for line in lines)]
    now = (ClockReading(*clock).now, record.counts_in(counts))
    minutes = [_span(before, after) for before, after in pairwise([*samples, now])]
    return Rates(_last(samples, now, HOUR), _last(samples, now, DAY), tuple(minutes))


def _last(samples: Sequence[_Counts], now: _Counts, ms: int) -> Span:
    """The span from the newest sample that is so old, else from the oldest one."""
    older = [sample for sample in samples if sample[0] <= now[0] - ms]
    return _span(older[-1] if older else [*samples, now][0], now)


def _span(before: _Counts, after: _Counts) -> Span:
    """An operator's retry takes a job out of the outcome in which it was counted; no count is below 0 for that."""
    totals = ("created", "retries", "losses", "faults", *TERMINAL)
    counts = {name: max(0, after[1].get(name, 0) - before[1].get(name, 0)) for name in sorted(totals)}
    states = {name: number for name, number in sorted(after[1].items()) if name not in counts}
    return Span(instant(before[0]), max(0, after[0] - before[0]) / 1000, counts, states)
