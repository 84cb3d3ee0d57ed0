"""A history: the events of all processes in one run, in the order in which the witness received them."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from proof import LEASE

SECOND = 1_000_000  # µs
AFTER = 3 * SECOND  # how long after a fault its victims may still be late: they reconnect or restart


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
    """One run of a body: of a job, a tick, or code under a lock. `ended`: None if its process noted no end."""

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

    @property
    def uses(self) -> dict[str, int]:
        """The units of each quota."""
        return dict(self.begun.value.get("uses", {}))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that the nemesis made, from `since` to `until` (µs).

    `way`: kill, stop, cut, message and so on. `halts`: all processes hang, or are without Redis; otherwise `victims`,
    process ids. `nodes`: may be declared dead, with `gone` for good. `lost`: spans (µs) that the store may forget.
    `drops`: ordinary messages and results may be lost, as Celery allows.
    """

    name: str
    way: str
    since: int
    until: int
    halts: bool
    victims: frozenset[str]
    nodes: frozenset[str]
    gone: bool
    lost: tuple[tuple[int, int], ...]
    drops: bool


@dataclass
class History:
    """`about`: the seed, the commit, the parts of the world, the bounds of `quotas`, and so on; of a seed before there
    were quotas the `limits` of lanes in which more than one ran.
    """

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
        """The faults that had a victim; the nemesis notes the others as `fail`."""
        parts: dict[int, list[Event]] = {}
        for event in self.of("fault"):
            parts.setdefault(event.value["number"], []).append(event)
        last = self.events[-1].time if self.events else 0
        return [_fault(events, last) for events in parts.values() if events[-1].type != "fail"]

    def late(self, process: str, since: int, until: int) -> bool:
        """True if the lease of this process, held at `since` (µs), may have ended by `until`."""
        at = self.late_from(process, since)
        return at is not None and at <= until

    def late_from(self, process: str, since: int) -> int | None:
        """From when (µs) on the lease of this process, held at `since`, may have ended: the process, its supervisor or
        Redis hung for at least half a lease, at which it is renewed, or Redis forgot it."""
        half, number = int(self.lease * SECOND / 2), process.rpartition("/")[2]
        found: list[int] = []
        for one in self.faults:
            begun = max(one.since, since - 2 * half)
            if (one.halts or number in one.victims) and one.until + AFTER - begun >= half:
                found.append(begun + half)
            found += [begun for begun, _ in one.lost if since <= one.until + AFTER]
        return min(found, default=None)

    def clocks(self, since: int, until: int) -> int:
        """How often Redis' clock was set between these times."""
        return sum(since <= at <= until for one in self.faults if one.way == "clock" for at in (one.since, one.until))

    def lost(self, since: int, until: int) -> bool:
        """True if the store may have forgotten answers from between these times."""
        return any(begun <= until and since <= end for one in self.faults for begun, end in one.lost)

    @property
    def lease(self) -> float:
        return float(self.about.get("lease", LEASE))

    def is_lane(self, key: str) -> bool:
        return key not in self.about.get("limits", {})

    @property
    def checksum(self) -> str:
        return hashlib.sha256(json.dumps([asdict(one) for one in self.events], sort_keys=True).encode()).hexdigest()[
            :16
        ]

    def save(self, path: Path) -> None:
        lines = ",\n".join(json.dumps(asdict(event)) for event in self.events)
        text = f'{{"about": {json.dumps(self.about)}, "events": [\n{lines}\n]}}\n'.encode()
        path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)

    @classmethod
    def load(cls, path: Path) -> History:
        kept = path.read_bytes()
        history = json.loads(lzma.decompress(kept) if path.suffix == ".xz" else kept)
        return cls([Event(**event) for event in history["events"]], history["about"])

    @classmethod
    def from_lines(cls, lines: list[str], about: dict[str, Any]) -> History:
        """From the lines of a witness."""
        parted = (line.partition(" ") for line in lines)
        return cls([Event(index, int(at), **json.loads(text)) for index, (at, _, text) in enumerate(parted)], about)


def _fault(events: list[Event], last: int) -> Fault:
    about: dict[str, Any] = {}
    for event in events:
        about |= event.value
    times = [int(event.value.get("at", event.time)) for event in events]
    lost = [
        (int(at - one.value["loses"] * SECOND), at)
        for at, one in zip(times, events, strict=True)
        if "loses" in one.value
    ]
    return Fault(
        name=str(about["name"]),
        way=str(about.get("way", "")),
        since=int(times[0] - about.get("took", 0) * SECOND),
        until=times[-1] if events[-1].type == "ok" else last,
        halts=bool(about.get("halts")),
        victims=frozenset(map(str, about.get("victims", ()))),
        nodes=frozenset(about.get("nodes", ())),
        gone=bool(about.get("gone")),
        lost=tuple(lost),
        drops=bool(about.get("drops")),
    )


def _run(event: Event) -> tuple[str, str, int, object]:
    value = event.value
    return event.process, str(value["job"]), int(value["fence"]), value.get("step", 0)
