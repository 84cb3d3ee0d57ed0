"""Measures how long jobs wait and run, as histograms of each task. Heartbeats add the counts of a node to those in
Redis.

Each process of a node counts in memory, and writes its counts into a file in the folder of the runner status file: at
the end of a runner's slice, and once a second. The node's supervisor sums up the new counts of these files. So no job
needs a request to Redis for this; a process that is killed may lose the counts of one second.

A count has the name "<kind>\n<task>\n<bucket>". The kind is `run`, or the reason of a wait. The bucket is an index in
BOUNDS; the bucket `sum` has the sum of all times in ms.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from bisect import bisect_left
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TypedDict, TypeVar, cast

from coordinator.core.fleet import processes
from coordinator.core.fleet.run_times import RunTimes, Times, united

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0)
"""Upper bounds of the buckets, in seconds; one more bucket has all longer times."""

ENDING = ".measures"
_PAUSE = 1.0  # seconds between two writes of the file within a runner's slice
T = TypeVar("T")
_SEEN = "measured"  # name of the file with the counts that the supervisor has already read


class Batch(TypedDict):
    """Counts to be added to those in Redis. `of`: a random id, by which Redis adds a repeated batch only once; `add`:
    the counts by name.
    """

    of: str
    add: dict[str, int]


class Written(TypedDict, total=False):
    """The content of a process's file: its counts by name, and the run times of its tasks."""

    counts: dict[str, int]
    times: Times


class Measures:
    """Counts the waits and runs of jobs in one process; any thread may add to them. `times`: the recent run times of
    each task. `folder`: the folder of the status file, for the process's file; None: write none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.times = RunTimes()
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0] * (len(BOUNDS) + 2))
        self._dirty, self._written = False, time.monotonic()

    def add(self, kind: str, task: str, seconds: float) -> None:
        """Count one wait or run of a task. `kind`: `run`, or the reason of the wait."""
        with self._lock:
            counts = self._counts[kind, task]
            counts[bisect_left(BOUNDS, seconds)] += 1
            counts[-1] += seconds * 1000
            self._dirty = True

    def write(self, now: bool = True) -> None:
        """Write the counts into the process's file, if there are new ones. `now`: False leaves that until the last
        write is a second old. Ignores an OSError, which means that the worker is gone.
        """
        if not self._dirty or self._folder is None or not (now or time.monotonic() - self._written >= _PAUSE):
            return
        with self._lock, suppress(OSError):
            self._dirty, self._written = False, time.monotonic()
            written: Written = {"counts": self.counts(), "times": self.times.sums()}
            _replace(self._folder / f"{processes.identity()}{ENDING}", written)

    def counts(self) -> dict[str, int]:
        """Return the counts since the process began, by name; without zeros."""
        names = [*map(str, range(len(BOUNDS) + 1)), "sum"]
        return {
            f"{kind}\n{task}\n{name}": round(count)
            for (kind, task), counts in self._counts.items()
            for name, count in zip(names, counts, strict=True)
            if count
        }


class Reader:
    """Reads in a supervisor which counts the processes of its node have written since the last read. `times`: the
    recent run times of each task on the node.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, dict[str, int]] = _read(folder / _SEEN, {})
        self._batch: Batch | None = None
        self.times: Times = {}

    def batch(self) -> Batch | None:
        """Return the counts to be sent to Redis, the same batch until `sent` is called; None if nothing is new. The
        counts are marked as read on disk before: if the supervisor is killed, the batch is lost, and never sent twice.
        """
        if self._batch is None and (new := self._new()):
            self._batch = {"of": uuid.uuid4().hex, "add": new}
        return self._batch

    def sent(self) -> None:
        """Forget the batch, since Redis has accepted it."""
        self._batch = None

    def _new(self) -> dict[str, int]:
        new, times = defaultdict[str, int](int), list[Times]()
        with suppress(OSError):
            for path in sorted(self._folder.glob(f"*{ENDING}")):
                gone = processes.condition(path.name.removesuffix(ENDING)) == "gone"
                written = _read(path, Written())
                before, now = self._seen.get(path.name, {}), written.get("counts", {})
                times.append(written.get("times", {}))
                for field, count in now.items():
                    new[field] += count - before.get(field, 0)
                self._seen[path.name] = now or before
                if gone:  # the process has ended, and writes nothing more
                    self._seen.pop(path.name, None)
                    path.unlink(missing_ok=True)
            if any(new.values()):
                _replace(self._folder / _SEEN, self._seen)
        self.times = united(times)
        return {field: count for field, count in new.items() if count}


def _replace(path: Path, value: object) -> None:
    """Write `value` as JSON into a new file, and rename the file to `path`, so that no reader sees half of it. Raises
    OSError.
    """
    fresh = path.with_name(f"{path.name}-{threading.get_ident()}")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)


def _read(path: Path, default: T) -> T:
    """Read the JSON of a file; `default` if the file is missing or is no JSON."""
    with suppress(OSError, ValueError):
        return cast(T, json.loads(path.read_text()))
    return default
