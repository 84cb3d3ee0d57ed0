"""docs/moving.md: beats of RedBeat beside ours, and its entries taken over."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redbeat import RedBeatSchedulerEntry

from coordinator import Coordinator, Entry
from tests.harness.installation import Installation
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import Process, start

REDBEAT, OURS = "redbeat.RedBeatScheduler", "coordinator.scheduler.Scheduler"


class Beats:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Process] = []

    def start(self, scheduler: str) -> Process:
        argv = ["-m", "celery", "-A", "examples.moving.shop", "beat", "--pidfile=", "-l", "INFO", "-S", scheduler]
        with self.log(len(self.started)).open("wb") as out:
            beat = start(argv, env=os.environ, stdout=out, stderr=out)
        self.started.append(beat)
        wait_until(lambda: "Starting..." in self.log(self.started.index(beat)).read_text())
        return beat

    def log(self, number: int) -> Path:
        return self.directory / f"beat-{number}.log"


@pytest.fixture
def moved(apps: Installation) -> Iterator[Any]:
    """The script that takes entries over, with the entries of examples/moving/before in RedBeat's Redis."""
    apps.app("moving")
    import_module("examples.moving.before.celery_redbeat").main()
    yield import_module("examples.moving.after.celery_redbeat")
    with apps.server.client(1) as broker:
        broker.delete(f"{apps.prefix}.celery")


@pytest.fixture
def beats(moved: Any, tmp_path: Path) -> Iterator[Beats]:
    found = Beats(tmp_path)
    yield found
    for beat in found.started:
        beat.kill()
        beat.wait()


def ticks(coordinator: Coordinator, name: str = "each second") -> int:
    return len([one for one in coordinator.entries.history(name) if one.kind == "tick"])


def test_a_beat_of_redbeat_that_is_killed_stops_all_for_25_minutes_but_any_of_ours_goes_on(
    moved: Any, beats: Beats, redis_server: RedisServer
) -> None:
    conf, coordinator = moved.app.redbeat_conf, moved.coordinator
    first = beats.start(REDBEAT)
    with redis_server.client(3) as schedule:
        wait_until(lambda: schedule.exists(conf.lock_key))
        beats.start(REDBEAT)
        first.kill()
        first.wait()
        assert timedelta(seconds=schedule.ttl(conf.lock_key)) > timedelta(minutes=24)
        assert "Acquired lock" not in beats.log(1).read_text()
    beats.started[1].kill()
    soon = RedBeatSchedulerEntry.from_key(f"{conf.key_prefix}each second", app=moved.app)
    soon.reschedule(datetime.now(UTC) + timedelta(seconds=10))
    late = RedBeatSchedulerEntry.from_key(f"{conf.key_prefix}at noon", app=moved.app)
    late.reschedule(datetime.now(UTC) - timedelta(days=1))
    for said in ("taken over", "here already"):
        assert moved.take_over()["at noon"] == said
    ours = [beats.start(OURS) for _ in range(2)]
    wait_until(lambda: ticks(coordinator) >= 1)
    assert moved.take_over()["each second"] == "here already"
    ours[0].kill()
    ours[0].wait()
    sent = ticks(coordinator)
    wait_until(lambda: ticks(coordinator) >= sent + 2)
    history = coordinator.entries.history("each second")
    assert {one.kind for one in history} == {"tick"}, "it was not due while no beat ran"
    assert {after.at - before.at for before, after in pairwise(history)} == {timedelta(seconds=1)}
    assert [one.kind for one in coordinator.entries.history("at noon")] == ["run"], "it was due while no beat ran"


def test_entries_are_taken_over_once_and_what_cannot_be_is_said(moved: Any) -> None:
    entries = moved.coordinator.entries
    said = moved.take_over()
    assert said.pop("each month").startswith("left out: ")
    assert said == {"each second": "taken over", "at noon": "taken over", "switched off": "paused"}
    found = {entry.name: entry for entry in entries.all()}
    assert {name: (one.text, bool(one.paused)) for name, one in found.items()} == {
        "each second": ("every 1", False),
        "at noon": ("crontab 0 12 * * *", False),
        "switched off": ("every 60", True),
    }
    entries.put(Entry("at noon", "0 30 12 * * ? *", "celery.ping"))
    again = moved.take_over()
    assert (again["at noon"], again["switched off"]) == ("here already", "paused")
    assert entries.entry("at noon").task == "celery.ping", "a second call changes nothing that was changed since"
