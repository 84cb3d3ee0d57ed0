"""The outbox on real nodes, and under kills: of those who write, just after the commit, and of those who relay."""

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator import UnknownJob
from tests.harness.fleet import ROOT, Fleet
from tests.harness.hand_node import playing
from tests.harness.long import long
from tests.harness.waiting import wait_for_count, wait_until
from tests.harness.warm import Process, start

WRITERS = 4
# Of the kills, those of relays: each is given the time to be made good before the next.
TRANSACTIONS, DEATHS, KILLS, APART = long((240, 4, 2, (1.0, 1.5)), (10_000, 50, 50, (2.0, 4.0)))
PACE = long(0.0, 0.06)  # seconds between two transactions of a writer
SEED = 47


@pytest.fixture(params=["sqlite", "postgres"])
def boxed(request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path) -> Iterator[Any]:
    """The module of the app, whose tables are there."""
    in_postgres = request.param == "postgres"
    at = request.getfixturevalue("database") if in_postgres else f"sqlite:///{tmp_path / 'boxed.sqlite'}"
    fleet.environ["TEST_DATABASE"] = at
    module = fleet.app("boxed")
    module.metadata.create_all(module.engine)
    yield module
    module.engine.dispose()


@pytest.mark.parametrize("boxed", ["sqlite"], indirect=True)
def test_a_node_relays_and_goes_on_after_its_maintenance_was_killed(fleet: Fleet, boxed: Any) -> None:
    worker = fleet.worker("one", 1, app="boxed")
    for number in (1, 2):
        with Session(boxed.engine) as session, session.begin():
            job_id = boxed.submit(session, "order", number)
        wait_until(lambda: there(boxed, job_id), what=fleet.logs)  # noqa: B023
        assert boxed.coordinator.wait(job_id, 60).result == number
        if number == 1:
            worker.maintenance().kill()
    # The relay deletes the rows after it submitted them, and has Redis forget them then.
    store = boxed.coordinator.store
    wait_until(lambda: not store.read("EXISTS", store.key("outbox", "coordinator/outbox/boxed")), what=fleet.logs)


def there(boxed: Any, job_id: str) -> bool:
    with suppress(UnknownJob):
        return bool(boxed.coordinator.job(job_id))
    return False


class Witness:
    """A node that runs what comes, and forgets each record at once: so Redis knows no job by its record any more.

    `ran`: the numbers under each key, in their order; `latest`: how long at most after its transaction a job came.
    """

    def __init__(self, module: Any) -> None:
        self.ran: defaultdict[str, list[int]] = defaultdict(list)
        self.latest = 0.0
        self._coordinator, self._engine, self._orders = module.coordinator, module.engine, module.orders
        self._node, self._over = playing(module), threading.Event()
        self._came: dict[tuple[str, int], float] = {}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Witness":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        store = self._coordinator.store
        while not self._over.wait(0.02):
            self._node.nodes.beat("one", "a", {})
            while taken := self._node.take():
                job = self._coordinator.job(taken.id)
                self.ran[job.key].append(job.args[0])
                self._came[job.key, job.args[0]] = job.submitted.timestamp()
                self._node.finish(taken)
                store.read("DEL", store.key("job", taken.id))

    @property
    def count(self) -> int:
        return sum(map(len, self.ran.values()))

    def committed(self) -> dict[str, list[int]]:
        """What is in the database, and so the latest."""
        found = defaultdict[str, list[int]](list)
        with Session(self._engine) as session:
            for key, number, at in session.execute(select(self._orders).order_by("key", "number")):
                found[key].append(number)
                self.latest = max(self.latest, self._came.get((key, number), 0.0) - at)
        return found


class Crowd:
    """Writers, each of its key, and two relays. Who dies is started again."""

    def __init__(self, fleet: Fleet, transactions: int, deaths: int) -> None:
        self._env, self.log = fleet.environ, fleet.directory / "crowd.log"
        self._out = self.log.open("a")
        self._left = dict.fromkeys(range(WRITERS), transactions // WRITERS)
        commits = transactions * 2 // 3
        self._each = commits // (deaths + WRITERS)
        self.deaths = 0
        self.writers = {one: self._write(one) for one in self._left}
        self.relays = [self._start("relay") for _ in range(2)]

    def _start(self, *args: str) -> Process:
        env = os.environ | self._env
        return start(["-m", "tests.harness.apps.boxed", *args], ROOT, env, stdout=self._out, stderr=self._out)

    def _write(self, one: int) -> Process:
        return self._start("write", f"order/{one}", str(self._left[one]), str(self._each), str(PACE))

    def tend(self, last: Any) -> bool:
        """Start again those writers that died with transactions left; False once none is left."""
        for one, writer in [*self.writers.items()]:
            if writer.poll() is None:
                continue
            del self.writers[one]
            if writer.returncode:
                self.deaths += 1
                self._left[one] = TRANSACTIONS // WRITERS - last(f"order/{one}") * 3 // 2
                if self._left[one] > 0:
                    self.writers[one] = self._write(one)
        return bool(self.writers)

    def kill_a_relay(self, number: int) -> None:
        self.relays[number].kill()
        self.relays[number].wait()
        self.relays[number] = self._start("relay")
        self.deaths += 1

    def end(self) -> None:
        for process in [*self.writers.values(), *self.relays]:
            process.kill()
            process.wait()
        self._out.close()


@contextmanager
def crowd_of(fleet: Fleet) -> Iterator[Crowd]:
    crowd = Crowd(fleet, TRANSACTIONS, DEATHS)
    try:
        yield crowd
    finally:
        crowd.end()


@pytest.mark.timeout(long(300, 1200))
def test_none_is_lost_none_is_there_twice_or_without_its_commit_and_none_is_late(fleet: Fleet, boxed: Any) -> None:
    chance = random.Random(SEED)
    with Witness(boxed) as witness, crowd_of(fleet) as crowd:
        begun, kills, due = time.monotonic(), 0, time.monotonic() + chance.uniform(*APART)
        while crowd.tend(boxed.last) or kills < KILLS:
            if kills < KILLS and time.monotonic() > due:
                crowd.kill_a_relay(chance.randrange(2))
                kills, due = kills + 1, time.monotonic() + chance.uniform(*APART)
            time.sleep(0.05)
        written = time.monotonic() - begun
        committed = witness.committed()
        wait_for_count(lambda: witness.count, sum(map(len, committed.values())), 60, crowd.log.read_text)
        wait_until(lambda: not boxed.coordinator._outboxes[""].rows.read(1))
        committed = witness.committed()
        print(
            f"{sum(map(len, committed.values()))} commits in {written:.0f} s, {crowd.deaths} kills, "
            f"latest {witness.latest:.2f} s"
        )
    assert witness.ran == committed
    assert boxed.coordinator.counts()["created"] == witness.count
    assert crowd.deaths >= DEATHS + KILLS
    assert witness.latest < 25, "a relay was killed, or looked by itself: 4 s at most on a quiet machine"
