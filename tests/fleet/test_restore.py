"""Drills: Redis is lost, and a fleet goes on from a copy that is older."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coordinator.core.store import server
from coordinator.scheduler.entry import Entry
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start

KEEPS = ("--appendonly", "yes", "--appendfsync", "always")
TICK = "tests.harness.apps.shop.work"


class Drill:
    """`copy` makes the copy; `restored`: the server that comes up from it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.store = stack.enter_context(RedisServer(folder / "store", *self.options))

    options: tuple[str, ...] = KEEPS

    def copy(self) -> None:
        shutil.copytree(self.folder / "store", self.folder / "copy")

    def restored(self) -> RedisServer:
        self.store.kill()
        return self.stack.enter_context(RedisServer(self.folder / "copy", *self.options))


class Snapshot(Drill):
    options = ("--appendonly", "no")

    def copy(self) -> None:
        with self.store.client() as client:
            client.save()
        super().copy()

    def restored(self) -> RedisServer:
        after = super().restored()
        with after.client() as client:
            client.config_set("appendonly", "yes")
        return after


class Replica(Drill):
    def copy(self) -> None:
        """It is cut off from now on."""
        following = ("--replicaof", "127.0.0.1", str(self.store.port))
        self.behind = self.stack.enter_context(RedisServer(self.folder / "replica", *self.options, *following))
        with self.behind.client() as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")
            client.replicaof("NO", "ONE")

    def restored(self) -> RedisServer:
        self.store.kill()
        return self.behind


@contextmanager
def fleet_on(store: RedisServer, log: RedisServer, prefix: str, folder: Path) -> Iterator[Fleet]:
    folder.mkdir()
    with Fleet(log, prefix, folder) as fleet:
        fleet.environ["COORDINATOR_URL"] = store.url(0)
        fleet.worker("one", 1)
        yield fleet


@contextmanager
def beat_of(fleet: Fleet) -> Iterator[None]:
    argv = ["-m", "celery", "-A", "tests.harness.apps.shop", "beat", "--pidfile="]
    argv += ["-S", "coordinator.scheduler.Scheduler", "-s", str(fleet.directory / "last")]
    with (fleet.directory / "beat.log").open("wb") as out:
        beat = start(argv, env=os.environ | fleet.environ, stdout=out, stderr=out)
    try:
        yield
    finally:
        beat.kill()
        beat.wait()


def ticks(fleet: Fleet) -> set[str]:
    """Those that Redis knows, whatever their state."""
    return {job.id for job in fleet.coordinator.jobs(key="tick", most=1000).jobs}


@pytest.mark.parametrize("way", [Snapshot, Drill, Replica])
def test_fences_go_on_ticks_come_once_and_doctor_tells_of_what_is_lost(
    way: type[Drill], redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SHORT", 1.0)
    with ExitStack() as stack:
        drill = way(tmp_path, stack)
        with fleet_on(drill.store, redis_server, prefix, tmp_path / "before") as fleet:
            fleet.coordinator.entries.put(Entry("tick", 1, TICK, args=("tick",), key="tick", misfire="all"))
            kept = fleet.coordinator.submit("k", fleet.shop.work.s("kept"))
            fleet.coordinator.wait(kept, timeout=30)
            with beat_of(fleet):
                wait_until(lambda: len(ticks(fleet)) >= 2, what=fleet.logs)
                drill.copy()
                copied = ticks(fleet)
                wait_until(lambda: len(ticks(fleet) - copied) >= 3, what=fleet.logs)
            lost = fleet.coordinator.submit("k", fleet.shop.work.s("lost"))
            fleet.coordinator.wait(lost, timeout=30)
            fired = ticks(fleet)
        greatest = max(stamp.fence for stamp in fleet.stamps())
        with fleet_on(drill.restored(), redis_server, prefix, tmp_path / "after") as fleet:
            coordinator = fleet.coordinator
            assert coordinator.job(kept).state == "succeeded"
            told = [finding for finding in coordinator.doctor() if finding.code == "redis.restarted"]
            assert bool(told) == (way is not Replica), "a replica ran all the time"
            known = ticks(fleet)
            assert coordinator.entries.pause("tick", why="restored")
            assert coordinator.entries.resume("tick", why="restored")
            with beat_of(fleet):
                wait_until(lambda: len(ticks(fleet) - known) >= 2, what=fleet.logs)
            again = coordinator.submit("k", fleet.shop.work.s("lost"), job_id=lost.id)
            coordinator.wait(again, timeout=30)
            assert not (ticks(fleet) - known) & fired
            assert [stamp.fence > greatest for stamp in fleet.stamps("lost", "begin")] == [False, True]
