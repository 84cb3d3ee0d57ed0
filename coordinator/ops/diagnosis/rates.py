"""Reads how many jobs ended in the last hour and day, and the same minute by minute for charts.

A sweep stores the counts of jobs once a minute (rules/history.lua). All rates are differences of two such samples, so
they do not depend on how long the records of jobs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from kombu.utils.json import loads

from coordinator.core.jobs import record
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.jobs.states import BADLY
from coordinator.core.store.client import Store
from coordinator.core.store.steps import clock_read, counts_read
from coordinator.core.store.times import ClockReading, instant

HOUR, DAY = 3_600_000, 86_400_000
_Counts = tuple[int, Mapping[str, int]]  # a sample: ms since the epoch, and the counts of jobs at that time


@dataclass(frozen=True, slots=True)
class Span:
    """What happened within `seconds` from `since` on. `counts`: how many jobs were created, how many ended with each
    outcome, and the number of retries, losses and faults. `states`: how many jobs were in each state at the span's end.
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
        """How many jobs ended by a fault, not by a person: failed, rolled_back, double_fault, expired."""
        return sum(self.counts[state] for state in BADLY)

    @property
    def per_second(self) -> float:
        """Jobs that ended per second."""
        return self.ended / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The last hour and the last day, or as much of them as was sampled, and each minute of the day, the oldest first.

    A minute without a living node has no sample, so it is a part of the next span.
    """

    hour: Span
    day: Span
    minutes: tuple[Span, ...]


def rates_of(store: Store) -> Rates:
    """Read the samples in one round trip, and compute the rates."""
    steps = [clock_read.looking(store), counts_read.looking(store)]
    lines, clock, counts = store.read_many([("LRANGE", store.key("samples"), "0", "-1"), *steps])
    samples = [(int(at), loads(text)) for at, _, text in (line.partition(b" ") for line in lines)]
    now = (ClockReading(*clock).now, record.counts_in(counts))
    minutes = [_span(before, after) for before, after in pairwise([*samples, now])]
    return Rates(_last(samples, now, HOUR), _last(samples, now, DAY), tuple(minutes))


def _last(samples: Sequence[_Counts], now: _Counts, ms: int) -> Span:
    """Return the span from the newest sample that is at least `ms` old, or else from the oldest sample, until `now`."""
    older = [sample for sample in samples if sample[0] <= now[0] - ms]
    return _span(older[-1] if older else [*samples, now][0], now)


def _span(before: _Counts, after: _Counts) -> Span:
    """Return the span between two samples. Where an operator's retry took a job out of its outcome's count, so that the
    difference would be negative, it is 0.
    """
    totals = ("created", "retries", "losses", "faults", *TERMINAL)
    counts = {name: max(0, after[1].get(name, 0) - before[1].get(name, 0)) for name in sorted(totals)}
    states = {name: number for name, number in sorted(after[1].items()) if name not in counts}
    return Span(instant(before[0]), max(0, after[0] - before[0]) / 1000, counts, states)
