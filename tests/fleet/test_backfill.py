"""A backfill on real beats and nodes that are killed: each instant once, no more at work than may be."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import Backfill, Entry
from coordinator.scheduler.backfill import quota_of
from tests.fleet.test_beats import Beat
from tests.harness.fleet import ALONE, Fleet, Worker, kill_all
from tests.harness.long import long
from tests.harness.waiting import wait_until

YEARLY, FIRST, SECONDS = "0 0 0 1 1 ?", 1976, 0.2
AT_ONCE = 3


def most_at_once(fleet: Fleet) -> int:
    """Of those attempts that ended."""
    ended = {(one.name, one.attempt): one.at for one in fleet.stamps(what="end")}
    spans = [
        (one.at, ended[one.name, one.attempt]) for one in fleet.stamps(what="begin") if (one.name, one.attempt) in ended
    ]
    return max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)


class Yearly:
    """Two beats, two nodes, and an entry with an instant a year."""

    def __init__(self, fleet: Fleet, folder: Path, years: list[str], key: str | None) -> None:
        self.fleet, self.folder, self.years = fleet, folder, years
        self.entries, self.environ, self.started = fleet.coordinator.entries, os.environ | fleet.environ, 0
        self.entries.put(Entry("yearly", YEARLY, "tests.harness.apps.shop.of_instant", [SECONDS], key=key))
        self.beats = [self.beat() for _ in range(2)]
        self.workers = [self.worker() for _ in range(2)]

    def call(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "coordinator", "schedule", "backfill", "yearly", f"{self.years[0]}-01-01"]
        argv += [f"{int(self.years[-1]) + 1}-01-01", "--at-once", str(AT_ONCE), "--why", "new"]
        return subprocess.Popen(argv, env=self.environ, stdout=subprocess.DEVNULL)

    def beat(self) -> Beat:
        self.started += 1
        return Beat(self.folder / f"beat-{self.started}.log", self.environ, "shop")

    def worker(self) -> Worker:
        self.started += 1
        return self.fleet.worker(f"n{self.started}", 2, *ALONE)

    @property
    def backfill(self) -> Backfill:
        found = self.entries.entry("yearly").backfill
        assert found
        return found

    def kill(self, victim: int, beat: bool) -> None:
        if beat:
            wait_until(self.beats[1 - victim].is_up)
            self.beats[victim].kill()
            self.beats[victim] = self.beat()
        else:
            self.workers[victim].kill()
            kill_all(self.workers[victim])
            self.workers[victim] = self.worker()

    def end(self) -> None:
        for beat in self.beats:
            beat.kill()


@pytest.mark.timeout(long(300, 400))
@pytest.mark.parametrize("key", [None, "report"])
def test_a_backfill_survives_kills_of_caller_beats_and_nodes(fleet: Fleet, tmp_path: Path, key: str | None) -> None:
    years = [str(FIRST + number) for number in range(long(20, 45))]
    fleet.configure(node_ttl=4, heartbeat=0.5, max_losses=100)
    yearly = Yearly(fleet, tmp_path, years, key)
    with yearly.call() as killed:
        killed.kill()
    assert yearly.call().wait() == 0
    try:
        for turn in range(3):
            done = yearly.backfill.succeeded
            wait_until(lambda done=done: yearly.backfill.over or yearly.backfill.succeeded > done + 1, what=fleet.logs)  # type: ignore[misc]
            yearly.kill(turn % 2, random.random() < 0.5)
        wait_until(lambda: yearly.backfill.over, 90, lambda: f"{yearly.backfill}\n{fleet.logs()}")
    finally:
        yearly.end()
    assert str(yearly.backfill) == f"{len(years)} of {len(years)} succeeded"
    assert fleet.coordinator.counts()["created"] == len(years)
    assert {one.name for one in fleet.stamps(what="end")} == {*years}
    assert most_at_once(fleet) <= (1 if key else AT_ONCE)
    first = list(dict.fromkeys(one.name for one in fleet.stamps(what="begin")))
    assert first == years if key else sorted(first) == years
    assert fleet.coordinator.quota_status(quota_of("yearly")).quota.used == 0
