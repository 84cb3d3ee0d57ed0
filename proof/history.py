"""A history: what everybody did in one run, in the order in which the witness heard of it."""

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
AFTER = 3 * SECOND  # so long after a fault its victims may still be behind: they connect again, start again


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

    `way`: kill, stop, cut, message and so on. `halts`: everybody stands still, or is without Redis; else `victims` do,
    the numbers of their processes; `nodes` may be taken for dead, `gone` for good. `lost`: of these spans (µs) the
    store may know nothing afterwards. `drops`: ordinary messages and results may be gone, which nobody promises.
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
        """Those that harmed somebody: of the others the nemesis says `fail`."""
        parts: dict[int, list[Event]] = {}
        for event in self.of("fault"):
            parts.setdefault(event.value["number"], []).append(event)
        last = self.events[-1].time if self.events else 0
        return [_fault(events, last) for events in parts.values() if events[-1].type != "fail"]

    def late(self, process: str, since: int, until: int) -> bool:
        """May the lease of this process, held at `since` (µs), have ended by `until`? So it is where itself, its warden
        or Redis stood still for half a lease at least, since it is renewed at half of it, or where Redis forgot it."""
        half, number = int(self.lease * SECOND / 2), process.rpartition("/")[2]
        for one in self.faults:
            if one.halts or number in one.victims:
                begun, end = max(one.since, since - 2 * half), min(one.until + AFTER, until)
                if end - begun >= half:
                    return True
            if any(begun <= until and since <= one.until + AFTER for begun, _ in one.lost):
                return True
        return False

    def lost(self, since: int, until: int) -> bool:
        """May the store have forgotten what it said between these times?"""
        return any(begun <= until and since <= end for one in self.faults for begun, end in one.lost)

    @property
    def lease(self) -> float:
        return float(self.about.get("lease", LEASE))

    def limit(self, key: str) -> int:
        return int(self.about.get("limits", {}).get(key, 1))

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
        found = json.loads(lzma.decompress(kept) if path.suffix == ".xz" else kept)
        return cls([Event(**event) for event in found["events"]], found["about"])

    @classmethod
    def heard(cls, lines: list[str], about: dict[str, Any]) -> History:
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
