"""Measures how long a node's jobs run, task by task. The routing compares that with the fleet, to recognize slow nodes.

Each process of a node collects the run times of its own jobs, and writes a summary of them with its measures
(`measures.py`). Old runs do not count, so a node that becomes fast again is soon recognized.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import accumulate

Times = dict[str, tuple[int, float]]
"""For each task the number of runs, and their median in seconds."""

LEAST = 20  # runs; the median of fewer says little
_RUNS, _AGE = 100, 600.0  # the last runs of a process that count, and for how many seconds
_TASKS = 16  # tasks that a node reports: those that run most


class RunTimes:
    """The run times in one process; any of its threads may add to them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._runs: defaultdict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_RUNS))

    def note(self, task: str, seconds: float) -> None:
        """Add the run time of a job that succeeded."""
        self._runs[task].append((self._now(), seconds))

    def sums(self) -> Times:
        """Summarize the recent runs of each task."""
        since, summary = self._now() - _AGE, {}
        for task, runs in self._runs.copy().items():
            recent = [seconds for at, seconds in runs.copy() if at >= since]
            if recent:
                summary[task] = (len(recent), statistics.median(recent))
        return summary


def united(parts: Iterable[Times]) -> Times:
    """Combine the summaries of a node's processes: the median of their medians, weighted by the number of runs. Tasks
    with few runs are left out.
    """
    medians: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for part in parts:
        for task, (runs, median) in part.items():
            medians[task].append((median, runs))
    totals = {task: sum(runs for _, runs in each) for task, each in medians.items()}
    most = sorted((task for task in medians if totals[task] >= LEAST), key=lambda task: -totals[task])[:_TASKS]
    return {task: (totals[task], _weighted_median(sorted(medians[task]), totals[task])) for task in most}


def _weighted_median(medians: list[tuple[float, int]], total: int) -> float:
    """The first median that at least half of the runs have reached, in ascending order."""
    passed = accumulate(runs for _, runs in medians)
    return next(median for (median, _), up_to in zip(medians, passed, strict=True) if up_to * 2 >= total)
