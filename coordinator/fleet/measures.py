"""Measures how long jobs wait and run: histograms of each task, which a node's beat adds to those in Redis.

Each process of a node counts in memory, and writes its counts into a file on the board: at the end of a runner's slice,
and once a second. The node's clock adds up what is new in these files. So no job costs a command, and a kill may lose a
second of it.

A field is "<kind>\n<task>\n<bucket>", kind: run, or the reason of a wait. A bucket is a place in BOUNDS, or `sum` for
the ms in all.
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

from coordinator.fleet import processes
from coordinator.fleet.run_times import RunTimes, Times, united

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0)
"""Seconds; the last bucket has all beyond."""

ENDING = ".measures"
_PAUSE = 1.0  # seconds between two writes within a slice
T = TypeVar("T")
_SEEN = "measured"  # the file of what the clock has read


class Batch(TypedDict):
    """What is to be added: a name of its own, and the numbers by field."""

    of: str
    add: dict[str, int]


class Written(TypedDict, total=False):
    """The file of one process."""

    counts: dict[str, int]
    times: Times


class Measures:
    """The counts of one process, and its `times`; any of its threads may add to them. `folder`: the worker's board."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.times = RunTimes()
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0] * (len(BOUNDS) + 2))
        self._dirty, self._written = False, time.monotonic()

    def add(self, kind: str, task: str, seconds: float) -> None:
        with self._lock:
            counts = self._counts[kind, task]
            counts[bisect_left(BOUNDS, seconds)] += 1
            counts[-1] += seconds * 1000
            self._dirty = True

    def write(self, now: bool = True) -> None:
        """Write what is new: `now`, or once a second. Ignores errors: then the worker is gone."""
        if not self._dirty or self._folder is None or not (now or time.monotonic() - self._written >= _PAUSE):
            return
        with self._lock, suppress(OSError):
            self._dirty, self._written = False, time.monotonic()
            written: Written = {"counts": self.counts(), "times": self.times.sums()}
            _replace(self._folder / f"{processes.identity()}{ENDING}", written)

    def counts(self) -> dict[str, int]:
        """The counts since the process began, by field."""
        names = [*map(str, range(len(BOUNDS) + 1)), "sum"]
        return {
            f"{kind}\n{task}\n{name}": round(count)
            for (kind, task), counts in self._counts.items()
            for name, count in zip(names, counts, strict=True)
            if count
        }


class Reader:
    """Reads what the processes of a node have counted since it read last. A clock has one. `times`: of the node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, dict[str, int]] = _read(folder / _SEEN, {})
        self._batch: Batch | None = None
        self.times: Times = {}

    def batch(self) -> Batch | None:
        """What is new, and once more until `sent`. It is noted on the board first: a clock that is killed loses it,
        and the next one adds nothing twice.
        """
        if self._batch is None and (new := self._new()):
            self._batch = {"of": uuid.uuid4().hex, "add": new}
        return self._batch

    def sent(self) -> None:
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
                if gone:  # it writes nothing more
                    self._seen.pop(path.name, None)
                    path.unlink(missing_ok=True)
            if any(new.values()):
                _replace(self._folder / _SEEN, self._seen)
        self.times = united(times)
        return {field: count for field, count in new.items() if count}


def _replace(path: Path, value: object) -> None:
    """Replace a file in one go, so that no reader sees half of it. Raises OSError."""
    fresh = path.with_name(f"{path.name}-{threading.get_ident()}")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)


def _read(path: Path, default: T) -> T:
    with suppress(OSError, ValueError):
        return cast(T, json.loads(path.read_text()))
    return default
