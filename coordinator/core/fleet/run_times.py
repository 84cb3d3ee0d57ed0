"""Measures how long the jobs of each task run on a node. To recognize slow nodes, routing compares these run times with
those of the whole fleet.

Each process of a node collects the run times of its own jobs, and writes a summary into the file of its measures
(`measures.py`). Runs older than ten minutes do not count, so that a node that is fast again is soon recognized.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import accumulate

Times = dict[str, tuple[int, float]]
"""By task: the number of recent runs, and the median of their run times in seconds."""

LEAST = 20  # the fewest runs of a task for which a node reports a median: that of fewer says little
_RUNS, _AGE = 100, 600.0  # for each task and process, this many last runs count, and each for so many seconds
_TASKS = 16  # a node reports this many tasks: those with the most runs


class RunTimes:
    """Collects the run times of the jobs of one process; any thread may add to them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._runs: defaultdict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_RUNS))

    def note(self, task: str, seconds: float) -> None:
        """Add the run time of a job that succeeded, in seconds."""
        self._runs[task].append((self._now(), seconds))

    def sums(self) -> Times:
        """Return the number and the median of the recent runs of each task."""
        since, summary = self._now() - _AGE, {}
        for task, runs in self._runs.copy().items():
            recent = [seconds for at, seconds in runs.copy() if at >= since]
            if recent:
                summary[task] = (len(recent), statistics.median(recent))
        return summary


def united(parts: Iterable[Times]) -> Times:
    """Combine the summaries of a node's processes into one: for each task the sum of the runs, and the median of the
    processes' medians, weighted by the number of runs. Leaves out tasks with fewer than 20 runs.
    """
    medians: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for part in parts:
        for task, (runs, median) in part.items():
            medians[task].append((median, runs))
    totals = {task: sum(runs for _, runs in each) for task, each in medians.items()}
    most = sorted((task for task in medians if totals[task] >= LEAST), key=lambda task: -totals[task])[:_TASKS]
    return {task: (totals[task], _weighted_median(sorted(medians[task]), totals[task])) for task in most}


def _weighted_median(medians: list[tuple[float, int]], total: int) -> float:
    """Return the weighted median of pairs of a median and its number of runs, sorted. `total`: the sum of all runs."""
    passed = accumulate(runs for _, runs in medians)
    return next(median for (median, _), up_to in zip(medians, passed, strict=True) if up_to * 2 >= total)
