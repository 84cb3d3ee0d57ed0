"""How long a node's jobs run, task by task. The routing compares it with the fleet's and so knows a slow node.

Each process of a node notes the run times of its own jobs, and once a second writes their sums into a file in shared
memory. They go to Redis with a beat: no command is made for a job. Old runs count no more, so a node that became fast
again is found out.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from coordinator.fleet import processes

Times = dict[str, tuple[int, float]]
"""For each task the number of runs, and their median in seconds."""

LEAST = 20  # runs; the median of fewer says little
_RUNS, _AGE = 100, 600.0  # the last runs of a process that count, and for how many seconds
_PAUSE = 1.0  # seconds between two writes
_ENDING = ".times"
_TASKS = 16  # are told for a node: those that run most


class RunTimes:
    """Belongs to one process; any of its threads may note. `folder`: the worker's board."""

    def __init__(self, folder: Path | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._now = now
        self._written = now()
        self._runs: defaultdict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_RUNS))

    def note(self, task: str, seconds: float) -> None:
        """A job's task ended well after so many seconds."""
        now = self._now()
        self._runs[task].append((now, seconds))
        if self._folder and now - self._written >= _PAUSE:
            self._written = now
            self._write(self._folder / f"{processes.identity()}{_ENDING}")

    def _write(self, path: Path) -> None:
        """In one go, so that nobody reads a half. It is a measurement: where the worker is gone, nobody needs it."""
        with suppress(OSError):
            fresh = path.with_name(f"{path.name}-{threading.get_ident()}")
            fresh.write_text(json.dumps(self.sums()))
            fresh.replace(path)

    def sums(self) -> Times:
        since, found = self._now() - _AGE, {}
        for task, runs in self._runs.copy().items():
            recent = [seconds for at, seconds in runs.copy() if at >= since]
            if recent:
                found[task] = (len(recent), statistics.median(recent))
        return found


def read(folder: Path) -> Times:
    """Unite the sums that the processes of a node have written."""
    found = []
    with suppress(OSError):
        for path in folder.glob(f"*{_ENDING}"):
            with suppress(OSError, ValueError):
                found.append(json.loads(path.read_text()))
    return united(found)


def united(parts: Iterable[Times]) -> Times:
    """Unite the sums of a node's processes: the median of medians, by the number of runs. Few are left out."""
    found: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for part in parts:
        for task, (runs, median) in part.items():
            found[task].append((median, runs))
    totals = {task: sum(runs for _, runs in each) for task, each in found.items()}
    most = sorted((task for task in found if totals[task] >= LEAST), key=lambda task: -totals[task])[:_TASKS]
    return {task: (totals[task], _middle(sorted(found[task]), totals[task])) for task in most}


def _middle(each: list[tuple[float, int]], total: int) -> float:
    """The first median up to which half of the runs lie."""
    passed = accumulate(runs for _, runs in each)
    return next(median for (median, _), up_to in zip(each, passed, strict=True) if up_to * 2 >= total)
