"""The checker: writers, readers and mishaps over one replica set, and what must hold of all they saw."""

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tasks.documents.copy import Copy
from tests.consistency.members import Members
from tests.consistency.observers import Accepted, Gauge, Read, Reader, Seen, Writer, by_pointer
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.tasks.documents.replica_set import NAME

LONGEST = 3.0  # s that an author waits, while a member lives and Redis is there
STEPS = ("before", "half", "written", "reported", "committed")
NAMES = ("a", "b", "c", "d", "e")


class Trial:
    """`mishaps` one after the other, at least `updates`; the seed is told when something does not hold."""

    def __init__(self, members: Members, server: RedisServer, directory: Path, seed: int, pace: float = 0.1) -> None:
        self.members = members
        self.server = server
        self.directory = directory
        self.seed = seed
        self.pace = pace
        self.breath = 0.01  # s between two looks of the reader, lest it take a processor for itself
        self.random = random.Random(seed)
        self.seen = Seen()
        self.over = threading.Event()
        self.up, self.since = True, 0.0  # is Redis there, and since when
        self.doing = ""
        self._mishaps_over = False
        self._updates = 0

    def enough(self) -> bool:
        answered = len(self.seen.accepted) + self.seen.refused
        return self.over.is_set() or bool(self.seen.wrong) or (self._mishaps_over and answered >= self._updates)

    def whole(self) -> bool:
        """Redis knows all that any author was told, and any member."""
        known = max(member.copies.committed().version for member in self.members.all)
        return self.members.document.pointer()[0] >= max(known, self.seen.told)

    def run(self, mishaps: list[str], updates: int, read: Read = by_pointer) -> Seen:
        self._updates = updates
        self.members.ready(*NAMES)
        writers = self.writers()
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

    def writers(self) -> list[threading.Thread]:
        """They end once it is `enough`."""
        return [Writer(self, number) for number in range(3)]

    def halves(self, copy: Copy) -> bool:
        """Is an update in it of which only a part is there?"""
        return any(copy.value(f"left:{number}") != copy.value(f"right:{number}") for number in range(3))

    def waited(self, since: float, until: float) -> None:
        """An author, for its update."""
        if self.up:
            self.seen.waits.append((max(since, self.since), until, self.doing))

    def settle(self) -> None:
        """Until all are members again and updates go on: what two mishaps cost together is not looked at."""
        self.members.expect(*NAMES, timeout=30)
        grace = self.members.store.key("grace", NAME)
        wait_until(lambda: not self.members.store._client.exists(grace), what="no version may begin")
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
            self.seen.heard = min(self.seen.heard, *(member.copies.committed().version for member in self.members.all))
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
        self.kept(final, told)
        slowest, stood, when = seen.slowest()
        assert slowest < LONGEST, f"{told}an author waited {slowest:.2f} s in {when}, beside {stood:.2f} s of the disk"

    def kept(self, final: Copy, told: str) -> None:
        """What authors were told is there, in its order, and nothing else."""
        last: dict[str, Accepted] = {}
        for one in sorted(self.seen.accepted, key=lambda one: (one.version, one.fence)):
            for entry in one.changes:
                before = last.get(entry)
                assert before is None or before.fence < one.fence, f"{told}{entry}: {one} came after {before}"
                last[entry] = one
        found = {entry: (final.value(entry), final.fence(entry)) for entry in final.state}
        assert found == {entry: (one.changes[entry], one.fence) for entry, one in last.items()}, told
