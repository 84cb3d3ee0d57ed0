"""The checker: writers, readers and mishaps over one replica set, and what must hold of all they saw."""

import itertools
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from coordinator.copies import Copy
from coordinator.errors import StaleFence, StoreUnavailable
from tests.replicas.members import NAME, Member, Members
from tests.servers import RedisServer
from tests.waiting import wait_until

LONGEST = 3.0  # s that an author waits, while a member lives and Redis is there
STEPS = ("before", "half", "written", "reported", "committed")
NAMES = ("a", "b", "c", "d", "e")

Read = Callable[[Member], Copy]


def by_pointer(member: Member) -> Copy:
    return member.document.read()


def without_pointer(member: Member) -> Copy:
    """The planted defect: what lies here is taken for the newest."""
    version, sha = member.copies.committed()
    return member.copies.read(version, sha) or Copy(0, "-", {})


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
    slowest: float = 0.0
    when: str = ""
    stalled: float = 0.0  # the longest that the machine took for a flushed write of a few bytes
    told: int = 0  # the highest version that an author was told
    heard: int = 0  # the same, as far as every read must give it
    sums: dict[int, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def same(self, where: str, version: int, sha: str) -> None:
        if version and self.sums.setdefault(version, sha) != sha:
            self.wrong.append(f"version {version} is another on {where}")


class Writer(threading.Thread):
    """Updates of its own entries, of shared ones, and of pairs that are always alike; each under a new fence."""

    def __init__(self, trial: "Trial", number: int) -> None:
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
        if self.trial.up:
            waited = time.monotonic() - max(began, self.trial.since)
            if waited > seen.slowest:
                seen.slowest, seen.when = waited, self.trial.doing


class Reader(threading.Thread):
    """Reads on every member, one after the other."""

    def __init__(self, trial: "Trial", read: Read) -> None:
        super().__init__(daemon=True)
        self.trial = trial
        self.read = read
        self.last: dict[str, int] = {}

    def run(self) -> None:
        while not self.trial.over.is_set():
            for member in self.trial.members.all:
                try:
                    self.look(member)
                except StoreUnavailable:
                    time.sleep(0.01)

    def look(self, member: Member) -> None:
        seen, floor, epoch = self.trial.seen, self.trial.seen.heard, self.trial.since
        copy = self.read(member)
        seen.reads += 1
        seen.same(member.name, copy.version, copy.sha)
        for number in range(3):
            if copy.value(f"left:{number}") != copy.value(f"right:{number}"):
                seen.wrong.append(f"half an update is in version {copy.version} on {member.name}")
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
        client = self.trial.members.store.client
        ask = partial(self.trial.members.store.call, lambda: client.hget(key, member.name))
        whole, before, copy, after = self.trial.whole(), ask(), self.read(member), ask()
        steady = whole and self.trial.up and epoch == self.trial.since
        if steady and copy.stale and before is not None and before == after:
            known = member.copies.committed()[0], member.copies.versions()
            self.trial.seen.wrong.append(
                f"{member.name} is in the replica set and has not the newest: {known} in {self.trial.doing}"
            )


class Gauge(threading.Thread):
    """How long the disk takes, whatever members do: where it stands still, waiting says nothing of them."""

    def __init__(self, trial: "Trial") -> None:
        super().__init__(daemon=True)
        self.trial = trial

    def run(self) -> None:
        while not self.trial.over.wait(0.05):
            began = time.monotonic()
            with (self.trial.members.root / "gauge").open("wb") as file:
                file.write(b"few")
                file.flush()
                os.fsync(file.fileno())
            self.trial.seen.stalled = max(self.trial.seen.stalled, time.monotonic() - began)


class Trial:
    """`mishaps` one after the other, at least `updates`; the seed is told when something does not hold."""

    def __init__(self, members: Members, server: RedisServer, directory: Path, seed: int, pace: float = 0.1) -> None:
        self.members = members
        self.server = server
        self.directory = directory
        self.seed = seed
        self.pace = pace
        self.random = random.Random(seed)
        self.seen = Seen()
        self.over = threading.Event()
        self.up, self.since = True, 0.0  # is Redis there, and since when
        self.doing = ""
        self._mishaps_over = False
        self._updates = 0

    def enough(self) -> bool:
        answered = len(self.seen.accepted) + self.seen.refused
        return bool(self.seen.wrong) or (self._mishaps_over and answered >= self._updates)

    def whole(self) -> bool:
        """Redis knows all that any author was told, and any member."""
        known = max(member.copies.committed()[0] for member in self.members.all)
        return self.members.document.pointer()[0] >= max(known, self.seen.told)

    def run(self, mishaps: list[str], updates: int, read: Read = by_pointer) -> Seen:
        self._updates = updates
        self.members.ready(*NAMES)
        writers = [Writer(self, number) for number in range(3)]
        reader = Reader(self, read)
        for thread in (*writers, reader, Gauge(self)):
            thread.start()
        wait_until(lambda: len(self.seen.accepted) > 10 or self.seen.wrong)
        for mishap in mishaps:
            if not self.seen.wrong:
                self.doing = mishap
                getattr(self, mishap)()
                self.settle()
        self._mishaps_over = True
        for writer in writers:
            writer.join(120)
        self.over.set()
        reader.join(10)
        self.look()
        return self.seen

    def settle(self) -> None:
        """Until all are members again and updates go on: what two mishaps cost together is not looked at."""
        self.members.expect(*NAMES, timeout=30)
        told = self.seen.told
        wait_until(lambda: self.seen.told > told or self.seen.wrong, 30, "no update was made")

    def die(self) -> None:
        """At one of its steps, then it is started again."""
        member, step = self.random.choice(self.members.all), self.random.choice(STEPS)
        member.kill()
        self.members.expect(*(name for name in NAMES if name != member.name))
        member.start(step)
        wait_until(lambda: not member.living() or self.seen.wrong)
        time.sleep(self.random.uniform(0, 2))
        member.start()

    def hang(self) -> None:
        member = self.random.choice(self.members.all)
        member.pause()
        time.sleep(self.random.uniform(0.1, 4))
        member.resume()

    def full(self) -> None:
        member = self.random.choice(self.members.all)
        member.fill()
        time.sleep(self.random.uniform(0.1, 2))
        member.fill(False)

    def cut(self) -> None:
        """Redis loses what it did in the last part of a second."""
        kept = self.directory.with_name("kept")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.directory, kept)
        time.sleep(self.random.uniform(0.3, 1))

        def back() -> None:
            """What a member had not yet noted when Redis lost it may be missed there until another puts it forward."""
            time.sleep(0.1)  # who was told before is heard
            self.seen.heard = min(self.seen.heard, *(member.copies.committed()[0] for member in self.members.all))
            shutil.rmtree(self.directory)
            shutil.copytree(kept, self.directory)

        self.restart(back)

    def restart(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Redis killed; everything it said it keeps."""
        self.up = False
        self.server.kill()
        meanwhile()
        self.server.start()
        self.since, self.up = time.monotonic(), True
        wait_until(self.whole, 10, "Redis was not put forward")

    def look(self) -> None:
        """Everything that must hold."""
        seen, told = self.seen, f"seed {self.seed}: "
        assert not seen.wrong, told + "; ".join(seen.wrong[:5])
        final = self.members.agree(20)
        for member in self.members.all:
            for version in member.copies.versions():
                if copy := member.copies.read(version):
                    seen.same(member.name, version, copy.sha)
        assert not seen.wrong, told + "; ".join(seen.wrong[:5])
        last: dict[str, Accepted] = {}
        for one in sorted(seen.accepted, key=lambda one: (one.version, one.fence)):
            for entry in one.changes:
                before = last.get(entry)
                assert before is None or before.fence < one.fence, f"{told}{entry}: {one} came after {before}"
                last[entry] = one
        found = {entry: (final.value(entry), final.fence(entry)) for entry in final.state}
        assert found == {entry: (one.changes[entry], one.fence) for entry, one in last.items()}, told
        waited = f"{told}an author waited {seen.slowest:.2f} s in {seen.when}, the disk {seen.stalled:.2f} s"
        assert seen.slowest < LONGEST or seen.stalled > 1, waited
