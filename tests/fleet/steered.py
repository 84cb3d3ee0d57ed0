"""Beats that are killed, stopped and an hour wrong, while somebody steers the schedule: what must hold all the same."""

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from coordinator import Entry
from coordinator.scheduler.entry import tick_id
from tests.coordinator.scheduler.beats import Beats, instant_of
from tests.fleet.test_beats import Beat
from tests.harness.redis import RedisServer
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

SECOND = timedelta(seconds=1)
STEADY = [f"steady/{number}" for number in range(6)]
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
LATE = 3  # seconds between the entries of one beat: an act may come between
SKEWS = ("+0", "+1h", "-1h")


def entry(name: str, seconds: float = 1) -> Entry:
    return Entry(name, seconds, "sync", key=name, misfire="all")


@dataclass
class Spans:
    """When an entry was to be sent and when not; a moment in which somebody acts is neither."""

    on: list[tuple[datetime, datetime]] = field(default_factory=list)
    off: list[tuple[datetime, datetime]] = field(default_factory=list)


class Fleet:
    """Beats with clocks of their own. Half of them are stopped at a time, at most; one that is killed starts again."""

    def __init__(self, server: RedisServer, prefix: str, directory: Path, number: int) -> None:
        assert FAKETIME, "libfaketime is missing: make system installs it"
        rows = directory / "rows.json"
        rows.write_text("[]")
        self.environ = os.environ | {
            "TEST_BROKER": server.url(1),
            "TEST_ROWS": str(rows),
            "COORDINATOR_URL": server.url(0),
            "COORDINATOR_PREFIX": prefix,
            "LD_PRELOAD": str(FAKETIME[0]),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.directory, self.chance, self.started = directory, random.Random(), 0
        self.beats = [self.start(SKEWS[place % len(SKEWS)]) for place in range(number)]
        self.stopped: dict[int, datetime] = {}

    def start(self, skew: str) -> Beat:
        self.started += 1
        return Beat(self.directory / f"beat-{self.started}.log", self.environ | {"FAKETIME": skew})

    def trouble(self, now: datetime) -> None:
        """Kill one, or stop one for some seconds."""
        place = self.chance.randrange(len(self.beats))
        if place in self.stopped:
            return
        if self.chance.random() < 0.5 or len(self.stopped) >= len(self.beats) // 2:
            self.beats[place].kill()
            self.beats[place] = self.start(self.chance.choice(SKEWS))
        else:
            stop(self.beats[place].process)
            self.stopped[place] = now + self.chance.uniform(1, 8) * SECOND

    def wake(self, now: datetime | None = None) -> None:
        for place in [place for place, until in self.stopped.items() if now is None or until <= now]:
            self.beats[place].process.send_signal(signal.SIGCONT)
            del self.stopped[place]

    def logs(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self.directory.glob("beat-*.log")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for beat in self.beats:
            beat.kill()


class Operator:
    """Pauses, runs, skips, changes and removes, and remembers when each act was called and had returned."""

    def __init__(self, beats: Beats) -> None:
        self.beats, self.entries = beats, beats.coordinator.entries
        self.chance = random.Random()
        self.runs: set[str] = set()
        self.omitted: list[datetime] = []
        self.spans = {"paused": Spans(), "removed": Spans()}
        self.since: dict[str, datetime] = {}
        for name in (*STEADY, "paused", "removed", "skipped", "changed"):
            self.entries.put(entry(name))
        self.begun = beats.now()
        self.since = dict.fromkeys(self.spans, self.begun)
        self.is_on = dict.fromkeys(self.spans, True)

    def act(self) -> None:
        act = self.chance.choice([self.pause_or_resume, self.put_or_remove, self.run, self.skip, self.change])
        act()

    def _turn(self, name: str, off: Callable[[], object], on: Callable[[], object]) -> None:
        called = self.beats.now()
        (off if self.is_on[name] else on)()
        spans = self.spans[name]
        (spans.on if self.is_on[name] else spans.off).append((self.since[name], called))
        self.since[name], self.is_on[name] = self.beats.now(), not self.is_on[name]

    def pause_or_resume(self) -> None:
        self._turn("paused", lambda: self.entries.pause("paused", why="test"), lambda: self.entries.resume("paused"))

    def put_or_remove(self) -> None:
        self._turn("removed", lambda: self.entries.remove("removed"), lambda: self.entries.put(entry("removed")))

    def run(self) -> None:
        token = f"t{len(self.runs)}"
        self.runs |= {self.entries.run_now("steady/0", token=token) for _ in range(3)}

    def skip(self) -> None:
        self.omitted.append(self.entries.skip_next("skipped"))

    def change(self) -> None:
        if not self.entries.change("changed", self.chance.choice([2, 3])):
            self.entries.restore("changed")

    def ends(self) -> None:
        """Both entries are there again."""
        if not self.is_on["paused"]:
            self.pause_or_resume()
        if not self.is_on["removed"]:
            self.put_or_remove()
        for name in self.spans:
            self.spans[name].on.append((self.since[name], self.beats.now()))


def play(beats: Beats, fleet: Fleet, seconds: float) -> None:
    operator = Operator(beats)
    wait_until(lambda: len(beats.ids()) > 20, 60, fleet.logs)
    end = beats.now() + seconds * SECOND
    while beats.now() < end:
        pause = beats.now() + operator.chance.uniform(0.1, 0.6) * SECOND
        wait_until(lambda pause=pause: beats.now() > pause)  # type: ignore[misc]
        operator.act()
        if operator.chance.random() < 0.3:
            fleet.trouble(beats.now())
        fleet.wake(beats.now())
    fleet.wake()
    operator.ends()
    ended = beats.now()
    names = (*STEADY, "paused", "removed", "skipped", "changed")
    wait_until(lambda: all(caught_up(beats, name, ended) for name in names), 60, fleet.logs)
    check(beats, operator, ended)
    assert "Traceback" not in fleet.logs(), fleet.logs()


def caught_up(beats: Beats, name: str, end: datetime) -> bool:
    return int(beats.tick(name)["last"]) / 1000 > end.timestamp()


def check(beats: Beats, operator: Operator, ended: datetime) -> None:
    ids = beats.ids_in_any_order()  # each was created once
    runs = {job_id for job_id in ids if "@run:" in job_id}
    assert runs == operator.runs
    found: dict[str, set[datetime]] = {}
    for tick in ids - runs:
        found.setdefault(tick.rpartition("@")[0], set()).add(instant_of(tick))
    for name in STEADY:
        assert not missing(found[name], operator.begun, ended), name
    for name, spans in operator.spans.items():
        for since, until in spans.on:
            sent_until = min(until, reached(beats, found, until)) - LATE * SECOND  # beats in trouble may be later still
            assert not missing(found[name], since, sent_until), (name, since, until)
        for since, until in spans.off:
            assert not [at for at in found[name] if since < at < until], (name, since, until)
    assert not found["skipped"] & set(operator.omitted)
    assert missing(found["skipped"], operator.begun, ended) <= set(operator.omitted)


def reached(beats: Beats, found: dict[str, set[datetime]], at: datetime) -> datetime:
    """Up to which instant all steady entries had been sent by then."""
    jobs = [[(one, beats.coordinator.job(tick_id(name, one))) for one in found[name]] for name in STEADY]
    sent = [[one for one, job in ticks if job.submitted and job.submitted <= at] for ticks in jobs]
    return min(max(ticks, default=datetime.min.replace(tzinfo=UTC)) for ticks in sent)


def missing(found: set[datetime], since: datetime, until: datetime) -> set[datetime]:
    """The whole seconds between, at which no tick was sent."""
    at = since.replace(microsecond=0) + SECOND
    wanted = set()
    while at < until:
        wanted.add(at)
        at += SECOND
    return wanted - found
