"""Writers, readers and a gauge of the disk in a trial, and what they saw."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from coordinator.errors import StoreUnavailable
from tasks.documents.copy import Copy
from tasks.documents.errors import StaleFence
from tests.consistency.members import NAME, Member

if TYPE_CHECKING:
    from tests.consistency.checker import Trial

STILL = 0.5  # s that a flushed write of a few bytes takes where the disk stands still

Read = Callable[[Member], Copy]


def by_pointer(member: Member) -> Copy:
    return member.document.read()


def without_pointer(member: Member) -> Copy:
    """The planted defect: what lies here is taken for the newest."""
    return member.copies.committed()


@dataclass(frozen=True)
class Accepted:
    version: int
    fence: int
    changes: dict[str, object]


@dataclass
class Seen:
    """What writers and readers saw; `wrong` says what must not be."""

    accepted: list[Accepted] = field(default_factory=list)
    refused: int = 0
    reads: int = 0
    marked: int = 0
    waits: list[tuple[float, float, str]] = field(default_factory=list)  # of authors: since, until, in which mishap
    stalls: list[tuple[float, float]] = field(default_factory=list)  # since and until when the disk stood still
    told: int = 0  # the highest version that an author was told
    heard: int = 0  # the same, as far as every read must give it
    sums: dict[int, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def slowest(self) -> tuple[float, float, str]:
        """The longest wait of an author, s, less the time in which the disk stood still; that time; in which mishap."""

        def still(since: float, until: float) -> float:
            return sum(max(0.0, min(until, end) - max(since, begun)) for begun, end in self.stalls)

        counted = ((until - since, still(since, until), when) for since, until, when in self.waits)
        return max(((waited - stood, stood, when) for waited, stood, when in counted), default=(0.0, 0.0, ""))

    def same(self, where: str, version: int, sha: str) -> None:
        if version and self.sums.setdefault(version, sha) != sha:
            self.wrong.append(f"version {version} is another on {where}")


class Writer(threading.Thread):
    """Updates of its own entries, of shared ones, and of pairs that are always alike; each under a new fence."""

    def __init__(self, trial: Trial, number: int) -> None:
        super().__init__(daemon=True)
        self.trial = trial
        self.number = number
        self.random = random.Random(f"{trial.seed} {number}")

    def run(self) -> None:
        for count in itertools.count():
            if self.trial.enough():
                return
            time.sleep(self.random.uniform(0, self.trial.pace))  # the writers' own rhythm
            value = f"{self.number}.{count}"
            kind = self.random.choice(("own", "shared", "pair"))
            number = self.random.randrange(3)
            entries = [f"own:{self.number}:{number}"] if kind == "own" else [f"shared:{number}"]
            if kind == "pair":
                entries = [f"left:{number}", f"right:{number}"]
            self.write(dict.fromkeys(entries, value), f"{self.trial.seed}.{value}")

    def write(self, changes: dict[str, object], update_id: str) -> None:
        """Asked again until it is known what became of it."""
        seen, began, fence = self.trial.seen, time.monotonic(), 0
        while True:
            try:
                fence = fence or self.trial.members.document.fence()
                version = self.trial.members.document.update(
                    changes, fence=fence, who=f"w{self.number}", update_id=update_id, timeout=30
                )
            except StoreUnavailable:
                time.sleep(0.05)
            except StaleFence:
                seen.refused += 1
                break
            else:
                seen.accepted.append(Accepted(version, fence, changes))
                seen.told, seen.heard = max(seen.told, version), max(seen.heard, version)
                break
        self.trial.waited(began, time.monotonic())


class Reader(threading.Thread):
    """Reads on every member, one after the other."""

    def __init__(self, trial: Trial, read: Read) -> None:
        super().__init__(daemon=True)
        self.trial = trial
        self.read = read
        self.last: dict[str, int] = {}
        self.looked: dict[str, int] = {}

    def run(self) -> None:
        while not self.trial.over.is_set():
            for member in self.trial.members.all:
                with suppress(StoreUnavailable):
                    self.look(member)
                time.sleep(self.trial.breath)

    def look(self, member: Member) -> None:
        seen, floor, epoch = self.trial.seen, self.trial.seen.heard, self.trial.since
        copy = self.read(member)
        seen.reads += 1
        seen.same(member.name, copy.version, copy.sha)
        if self.looked.get(member.name) != copy.version:
            self.looked[member.name] = copy.version
            seen.wrong += [f"half an update is in version {copy.version} on {member.name}"] * self.trial.halves(copy)
        if copy.stale:
            seen.marked += 1
            self.explain(member, epoch)
        elif copy.version < (known := max(floor, self.last.get(member.name, 0))):
            told = f"{copy.version}, older than what was known, {known} ({floor} by authors)"
            seen.wrong.append(f"an unmarked read on {member.name} gives {told}")
        else:
            self.last[member.name] = copy.version

    def explain(self, member: Member, epoch: float) -> None:
        """A member of the set has the newest: its reads are marked only where Redis was away or lost its end."""
        key = self.trial.members.store.key("replicas", NAME)
        client = self.trial.members.store._client
        ask = partial(self.trial.members.store.call, lambda: client.sismember(key, member.copies.member))
        whole, before, copy, after = self.trial.whole(), ask(), self.read(member), ask()
        steady = whole and self.trial.up and epoch == self.trial.since
        if steady and copy.stale and before and after:
            known = member.copies.committed().version, member.copies.versions()
            self.trial.seen.wrong.append(
                f"{member.name} is in the replica set and has not the newest: {known} in {self.trial.doing}"
            )


class Gauge(threading.Thread):
    """How long the disk takes, whatever members do: while it stands still, waiting says nothing of them."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(daemon=True)
        self.trial = trial

    def run(self) -> None:
        while not self.trial.over.wait(0.05):
            began = time.monotonic()
            with (self.trial.members.root / "gauge").open("wb") as file:
                file.write(b"few")
                file.flush()
                os.fsync(file.fileno())
            if (ended := time.monotonic()) > began + STILL:
                self.trial.seen.stalls.append((began, ended))
