"""The counters agree with the records after every step of any history."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator import Coordinator
from coordinator.jobs.record import TERMINAL
from tests.harness.hand_node import Puppet, Taken

LIVE = ("waiting", "scheduled", "collected", "ready", "running", "retrying", "parked", "held", "rolling_back")


LASTING = ("fence", "sequence", "bells", "classes", "fits:", "swept", "clock",
           "format", "alive", "room", "counts", "node:",
           "serves:", "tasks:", "work:", "rung:", "declared")  # fmt: skip


class History:
    """Jobs moved by chance through every state."""

    def __init__(self, client: Coordinator, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = Puppet(client.store)
        self.node.up(capacity=1000)
        self.jobs: list[str] = []
        self.taken: list[Taken] = []
        self.acts: list[Callable[[], Any]] = [
            *[self.submit] * 6, *[self.take] * 6, *[self.finish] * 6, *[self.unpark] * 2, self.lose, self.lapse,
            self.cancel, self.retry, self.release, self.due, self.expire, self.pause, self.resume,
        ]  # fmt: skip

    def submit(self) -> None:
        chance = self.chance.random
        given = self.node.submit(
            self.chance.sample("abcd", self.chance.choice([1, 1, 2])), max_attempts=self.chance.choice([1, 2]),
            rollback={"task": "shop.other"} if chance() < 0.5 else None,
            on_failure="hold" if chance() < 0.3 else "release", max_losses=1, tell=chance() < 0.3,
            not_before=datetime.now(UTC) + timedelta(hours=1) if chance() < 0.1 else None,
            options={"expires": -1} if chance() < 0.1 else {},
        )  # fmt: skip
        self.jobs.append(given.id)

    def take(self) -> None:
        if taken := self.node.take():
            self.taken.append(taken)

    def finish(self) -> None:
        if self.taken:
            taken = self.taken.pop(self.chance.randrange(len(self.taken)))
            kinds = ["succeeded", "raised", "raised", "failed", "conflict", "parked"]
            self.node.finish(taken, self.chance.choice(kinds), delay=3_600_000)

    def unpark(self) -> None:
        for job_id in self.jobs:
            job = self.node.lanes.job(job_id)
            if job.state == "parked":
                last: Any = self.node.store._client.hget(self.node.store.key("job", job_id), "last")
                kind = self.chance.choice(["succeeded", "raised", "failed"])
                self.node.store.step("job_unpark", job_id, last, kind, '"detail"', 3_600_000, "", "", "", "")
                return

    def lose(self) -> None:
        if self.taken:
            self.node.lose(self.taken.pop(0), self.chance.choice(["lost", "timed_out"]))

    def lapse(self) -> None:
        self.node.lapse(*(taken.id for taken in self.taken[:1]))
        self.node.sweep()

    def some(self) -> str:
        return self.chance.choice(self.jobs[-12:])

    def cancel(self) -> None:
        self.node.lanes.cancel(self.some())

    def retry(self) -> None:
        self.node.lanes.retry(self.some(), why="again")

    def release(self) -> None:
        self.node.lanes.release(self.chance.choice("abcd"), why="stuck")

    def pause(self) -> None:
        self.node.lanes.pause(self.chance.choice("abcd"))

    def resume(self) -> None:
        self.node.lanes.resume(self.chance.choice("abcd"))

    def due(self) -> None:
        self._pull("due")

    def expire(self) -> None:
        self._pull("expiry")

    def _pull(self, kind: str) -> None:
        """What is to happen in an hour happens now."""
        found: Any = self.node.store._client.zrange(self.node.store.key(kind), 0, 0)
        for job_id in found:
            self.node.store._client.zadd(self.node.store.key(kind), {job_id: 1})
        self.node.sweep()

    def check(self, what: str) -> None:
        """What the records say, counted, is what the counters say."""
        counts = self.node.lanes.counts()
        states = Counter(self.node.lanes.job(job_id).state for job_id in self.jobs)
        assert {name: counts[name] for name in (*LIVE, *TERMINAL)} == {
            name: states[name] for name in (*LIVE, *TERMINAL)
        }, what
        assert counts["created"] == len(self.jobs)

    def end(self) -> None:
        """Everything over; held jobs are cancelled, retries brought forward."""
        for key in "abcd":
            self.node.lanes.resume(key)
        while open_ := [one for one in self.jobs if not self.node.lanes.job(one).over]:
            for job_id in open_:
                self.node.lanes.cancel(job_id)
            for taken in self.taken:
                self.node.finish(taken)
            self.taken.clear()
            self.node.order()
        self.node.store.step("parked_take", "shop", 10)


@pytest.mark.parametrize("seed", range(12))
def test_the_counters_agree_with_the_records_after_every_step_of_any_history(
    coordinator: Coordinator, seed: int
) -> None:
    history = History(coordinator, seed)
    history.submit()
    done = []
    for _ in range(150):
        act = history.chance.choice(history.acts)
        act()
        done.append(act.__name__)
        history.check(f"seed {seed}: {' '.join(done[-8:])}")
    history.end()
    history.check("at the end")
    store = coordinator.store
    names = {name.decode()[len(store.prefix) :] for name in store._client.scan_iter(store.prefix + "*", 1000)}
    kept = {f"job:{job_id}" for job_id in history.jobs}
    assert {name for name in names - kept if not name.startswith((*LASTING, "unsent:"))} == set()
    assert all(store._client.pttl(store.prefix + name) > 0 for name in kept)


def test_before_anything_was_counted_every_counter_is_nought(coordinator: Coordinator) -> None:
    counts = coordinator.counts()
    assert set(counts) == {"created", "retries", "losses", "faults", *LIVE, *TERMINAL}
    assert set(counts.values()) == {0}
