"""Real steps of all kinds on a Redis that writes each to its disk before it answers, and what each of them left."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from coordinator import Coordinator
from coordinator.core.store.client import Store
from coordinator.core.store.wire import Arg
from coordinator.errors import CoordinatorError
from coordinator.scheduler.entry import Entry
from proof.power.files import tail
from proof.power.server import PREFIX, Server, rewrite
from proof.power.states import State, look
from tests.harness.hand_node import Puppet, Taken, sketch

HOURS = 12 * 3_600_000  # ms: nothing lapses by itself until the last trial
KEYS: list[str | list[str]] = ["g/a", "g/b", "h/c", "h/d", ["g/a", "h/c"], ["g/b", "h/d"]]
ENDS = ["succeeded", "succeeded", "succeeded", "raised", "failed", "conflict"]
ASKED: list[dict[str, Any]] = [
    {}, {}, {"priority": 5}, {"max_attempts": 3, "retry_delay": 5.0}, {"uses": "line"},
    {"uses": {"line": 2, "room": 1}}, {"after": "cause"}, {"after": "event"}, {"on_failure": "hold"},
    {"when_busy": "defer"}, {"when_busy": "skip"}, {"collect": {"how": "list", "idle": 3600}}, {"instance": "one"},
    {"rollback": {"task": "shop.other"}}, {"options": {"countdown": 60}}, {"args": ["x" * 300]},
]  # fmt: skip


class Mark(NamedTuple):
    """A step that was answered: the bytes of the file by then, when (s since the epoch), and all keys after it."""

    step: str
    end: int
    time: float
    state: State


class Written(NamedTuple):
    """`data`: the server's folder; `marks`: the first stands for all that its base has; `fence`: the greatest that was
    answered.
    """

    data: Path
    marks: list[Mark]
    fence: int


class _Noting(Store):
    """Notes a mark after each step."""

    def step(self, name: str, *args: Arg, job_id: str | None = None) -> Any:
        reply = super().step(name, *args, job_id=job_id)
        self.note(name)
        return reply

    def look(self, name: str, *args: Arg) -> Any:
        """One that only reads may write the clock."""
        reply = super().look(name, *args)
        self.note(name)
        return reply

    def note(self, name: str) -> None:
        """Replaced once a file is to be watched."""


class _Client(Coordinator):
    @cached_property
    def store(self) -> Store:
        return _Noting(self.settings)


class Load:
    """Draws steps: jobs with all that they may ask for, their ends, losses, locks, grabs, quotas, events, operators."""

    def __init__(self, server: Server, data: Path, chance: Random) -> None:
        self.server, self.data, self.chance = server, data, chance
        self.client = _Client(url=server.url(0), prefix=PREFIX, lock_ttl=HOURS / 1000, timeout=60)
        self.node = Puppet(self.client.store, "one", HOURS)
        self.taken: list[Taken] = []
        self.marks: list[Mark] = []
        self.fence = 0
        self._numbers = itertools.count(1)
        self._ids: list[str] = []
        self._acts: dict[Callable[[], object], int] = {
            self._submit: 10, self._take: 10, self._finish: 9, self._lose: 1, self._lock: 2, self._grab: 2,
            self._event: 1, self._pause: 1, self._operate: 3, self._quota: 1, self._schedule: 1, self._sweep: 1,
        }  # fmt: skip

    def begin(self) -> None:
        """What the base has: the functions, two quotas, a node, and a few jobs."""
        self.client.quota("line", concurrency=2, why="power")
        self.client.quota("room", concurrency=3, why="power")
        self.node.up(capacity=100)
        for _ in range(20):
            self.act()
        with self.server.client() as client:
            rewrite(client)
        self._watch()

    def _watch(self) -> None:
        raw = self.server.raw()

        def note(step: str) -> None:
            size = tail(self.data).stat().st_size  # before the look, which may have Redis delete what has ended
            self.marks.append(Mark(step, size, time.time(), look(raw)))

        note("all before")
        self.client.store.note = note  # type: ignore[attr-defined]

    def act(self) -> None:
        (one,) = self.chance.choices([*self._acts], [*self._acts.values()])
        with suppress(CoordinatorError):  # a lane that is busy, an instance that is another's
            one()

    def _some(self) -> str:
        return self.chance.choice(self._ids[-20:] or ["nobody"])

    def _new(self, what: str) -> str:
        return f"{what}{next(self._numbers):04}"

    def _submit(self) -> None:
        asked, keys = dict(self.chance.choice(ASKED)), self.chance.choice(KEYS)
        if "after" in asked:
            asked["after"] = [self._some() if asked["after"] == "cause" else self.client.event("ready")]
        if {"instance", "collect"} & asked.keys():
            keys = self._new("k/")
        number = self._new("j")
        self.node.lanes.submit(sketch(keys, job_id=number, **asked))
        self._ids.append(number)

    def _take(self) -> None:
        """A supervisor rings the bell, a runner takes what is there."""
        bell, store = f"{next(self._numbers)}-by-hand", self.node.store
        store._client.zadd(store.key("rung", "one"), {bell: 2**53})
        store.note("ring")  # type: ignore[attr-defined]
        if taken := self.node.take(bell=bell):
            self.taken.append(taken)
            self.fence = max(self.fence, taken.fence)

    def _finish(self) -> None:
        if self.taken:
            one = self.taken.pop(self.chance.randrange(len(self.taken)))
            self.node.finish(one, self.chance.choice(ENDS), delay=self.chance.choice([0, HOURS]))

    def _lose(self) -> None:
        if self.taken:
            self.node.lose(self.taken.pop(self.chance.randrange(len(self.taken))))

    def _lock(self) -> None:
        with self.client.lock(self._new("lock/"), ttl=HOURS / 1000) as lease:
            self.fence = max(self.fence, lease.fence)

    def _grab(self) -> None:
        grab = self.client.grab(self._new("day/"), "1", "here", ttl=HOURS / 1000, on_losing="incomplete")
        self.fence = max(self.fence, grab.fence)
        grab.complete({"found": 1}) if self.chance.random() < 0.7 else grab.fail("broken")

    def _event(self) -> None:
        self.client.event(self.chance.choice(["ready", self._new("e")])).set(1, why="power")

    def _pause(self) -> None:
        key = self.chance.choice(["g/a", "h/c"])
        self.client.pause(key, why="power")
        self.client.resume(key, why="power")

    def _operate(self) -> None:
        one = self._some()
        if (act := self.chance.randrange(4)) == 0:
            self.client.cancel(one, why="power")
        elif act == 1:
            self.client.retry(one, why="power")
        else:
            self.client.move(one, to="front", why="power")

    def _quota(self) -> None:
        self.client.quota("line", concurrency=self.chance.choice([1, 2, 3]), why="power")

    def _schedule(self) -> None:
        entry = Entry(self._new("tick"), 3600, "shop.work", key="tick", misfire="all")
        self.client.entries.put(entry)

    def _sweep(self) -> None:
        self.node.store.step("sweep", 0, HOURS, "")


def write(folder: Path, program: str, size: int, seed: int = 1) -> Written:
    """A file whose part since its base has at least `size` bytes. The server is gone again, without a farewell."""
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    with Server(data, program, fsync="always") as server:
        load = Load(server, data, Random(seed))
        load.begin()
        while tail(data).stat().st_size < size:
            load.act()
        load.client.close()
    return Written(data, load.marks, load.fence)
