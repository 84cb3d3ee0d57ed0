"""A history: what everybody did in one run, in the order in which the witness heard of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

SECOND = 1_000_000  # µs
GRACE = 12 * SECOND  # so long after a fault its victims may still be behind: a lease, a failover, a start


@dataclass(frozen=True, slots=True)
class Event:
    """`index`: its place; `time`: µs by the clock of the witness."""

    index: int
    time: int
    process: str
    type: str
    f: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a body: of a job, a tick, a lock's code. `ended`: None where its process never said so."""

    begun: Event
    ended: Event | None

    @property
    def job(self) -> str:
        return str(self.begun.value["job"])

    @property
    def keys(self) -> list[str]:
        return list(self.begun.value["keys"])

    @property
    def fence(self) -> int:
        return int(self.begun.value["fence"])


@dataclass(frozen=True, slots=True)
class Fault:
    """What the nemesis did, from `since` to `until` (µs).

    `loses`: seconds before it of which the store may know nothing afterwards. `halts`: somebody may stand still, or be
    cut off, for longer than a lease. `drops`: ordinary messages and results may be gone, which nobody promises.
    """

    name: str
    since: int
    until: int
    loses: float
    halts: bool
    drops: bool


@dataclass
class History:
    """`about`: the seed, the commit, what the world was made of, `limits` of lanes, and so on."""

    events: list[Event]
    about: dict[str, Any] = field(default_factory=dict)

    def of(self, f: str, *types: str) -> Iterator[Event]:
        return (event for event in self.events if event.f == f and (not types or event.type in types))

    @cached_property
    def runs(self) -> list[Run]:
        """In the order of their begins."""
        began: list[Event] = []
        ended: dict[tuple[str, str, int, object], Event] = {}
        for event in self.of("run"):
            if event.type == "invoke":
                began.append(event)
            else:
                ended.setdefault(_run(event), event)
        return [Run(event, ended.get(_run(event))) for event in began]

    @cached_property
    def faults(self) -> list[Fault]:
        about: dict[int, dict[str, Any]] = {}
        times: dict[int, list[int]] = {}
        for event in self.of("fault", "invoke", "info", "ok"):
            about.setdefault(event.value["number"], {}).update(event.value)
            times.setdefault(event.value["number"], []).append(event.time)
            if event.type == "ok":
                about[event.value["number"]]["over"] = True
        last = self.events[-1].time if self.events else 0
        return [
            Fault(
                name=str(one["name"]),
                since=times[number][0],
                until=times[number][-1] if "over" in one else last,
                loses=float(one.get("loses", 0)),
                halts=bool(one.get("halts")),
                drops=bool(one.get("drops")),
            )
            for number, one in about.items()
        ]

    def halted(self, since: int, until: int) -> bool:
        """Was there a fault between these times (µs) that makes somebody late?"""
        return any(one.halts and one.since <= until and since <= one.until + GRACE for one in self.faults)

    def lost(self, at: int) -> bool:
        """May the store have forgotten what it said at this time?"""
        return any(one.loses and one.since - one.loses * SECOND <= at <= one.until + SECOND for one in self.faults)

    def limit(self, key: str) -> int:
        return int(self.about.get("limits", {}).get(key, 1))

    @property
    def checksum(self) -> str:
        return hashlib.sha256(json.dumps([asdict(one) for one in self.events], sort_keys=True).encode()).hexdigest()[
            :16
        ]

    def save(self, path: Path) -> None:
        lines = ",\n".join(json.dumps(asdict(event)) for event in self.events)
        path.write_text(f'{{"about": {json.dumps(self.about)}, "events": [\n{lines}\n]}}\n')

    @classmethod
    def load(cls, path: Path) -> History:
        found = json.loads(path.read_text())
        return cls([Event(**event) for event in found["events"]], found["about"])

    @classmethod
    def heard(cls, lines: list[str], about: dict[str, Any]) -> History:
        """From the lines of a witness."""
        parted = (line.partition(" ") for line in lines)
        return cls([Event(index, int(at), **json.loads(text)) for index, (at, _, text) in enumerate(parted)], about)


def _run(event: Event) -> tuple[str, str, int, object]:
    value = event.value
    return event.process, str(value["job"]), int(value["fence"]), value.get("step", 0)
