"""Real beat processes that are killed while the schedule changes: each tick once, no gap."""

import json
import os
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from tests.coordinator.scheduler.beats import Beats, instant_of, without_gap
from tests.harness.long import long
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until
from tests.harness.warm import start

ROOT = Path(__file__).parents[2]
NODES = [f"sync/urn:node:{number:02}" for number in range(20)]
CHANGED = NODES[7]


class Beat:
    def __init__(self, log: Path, environ: dict[str, str], app: str = "members") -> None:
        argv = ["-m", "celery", "-A", f"tests.harness.apps.{app}", "beat", "--pidfile=", "-l", "INFO"]
        argv += ["-S", "coordinator.scheduler.Scheduler"]
        self.log = log
        with log.open("wb") as out:
            self.process = start(argv, env=environ, stdout=out, stderr=out)

    def is_up(self) -> bool:
        return "beat: Starting" in self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Processes:
    def __init__(self, server: RedisServer, prefix: str, directory: Path) -> None:
        self.rows = directory / "rows.json"
        self.directory = directory
        self.environ = os.environ | {
            "TEST_BROKER": server.url(1),
            "TEST_ROWS": str(self.rows),
            "COORDINATOR_URL": server.url(0),
            "COORDINATOR_PREFIX": prefix,
        }
        self.started: list[Beat] = []

    def write(self, seconds_of_changed: str) -> None:
        """Every 2 s on even seconds, but for one row."""
        rows = [
            {"name": node, "schedule": f"{second} * * * * ?", "task": "sync", "args": [node], "key": node}
            for node in NODES
            for second in [seconds_of_changed if node == CHANGED else "0/2"]
        ]
        fresh = self.rows.with_suffix(".new")
        fresh.write_text(json.dumps(rows))
        fresh.replace(self.rows)

    def start(self) -> Beat:
        beat = Beat(self.directory / f"beat-{len(self.started)}.log", self.environ)
        self.started.append(beat)
        return beat

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for beat in self.started:
            beat.kill()

    def logs(self) -> str:
        return "\n".join(beat.log.read_text() for beat in self.started)


def test_beats_that_are_killed_while_a_schedule_changes_fire_each_tick_once(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    fire_each_tick_once(redis_server, prefix, tmp_path, seconds=long(14, 60))


def fire_each_tick_once(server: RedisServer, prefix: str, directory: Path, seconds: int) -> None:
    """Two beats over 20 entries with a tick each 2 s; one at a time is killed at random, one schedule changes."""
    beats = Beats(server, prefix)
    with Processes(server, prefix, directory) as processes:
        play(beats, processes, seconds)


def play(beats: Beats, processes: Processes, seconds: int) -> None:
    chance = random.Random()
    processes.write("0/2")
    pair = [processes.start(), processes.start()]
    wait_until(lambda: all(beats.tick(node) for node in NODES))
    began = beats.now()
    changed: datetime | None = None
    while beats.now() < began + timedelta(seconds=seconds):
        pause = beats.now() + timedelta(seconds=chance.uniform(0.5, 2.5))
        wait_until(lambda pause=pause: beats.now() > pause)  # type: ignore[misc]
        victim = chance.randrange(2)
        wait_until(pair[1 - victim].is_up)
        pair[victim].kill()
        pair[victim] = processes.start()
        if changed is None and beats.now() > began + timedelta(seconds=5):
            changed = beats.now()
            processes.write("1/2")
    # Where the one beat that saw the change was killed before it said so, the change counts once its version lapsed.
    wait_until(lambda: any(is_odd(tick) for tick in beats.ids() if tick.startswith(f"{CHANGED}@")), what=processes.logs)
    end = beats.now()
    wait_until(lambda: all(caught_up(beats, node, end) for node in NODES), what=processes.logs)
    assert [beat.process.poll() for beat in pair] == [None, None]

    ticks: dict[str, list[str]] = {node: [] for node in NODES}
    for tick in beats.ids():
        ticks[tick.partition("@")[0]].append(tick)
    for node in NODES:
        if node != CHANGED:
            assert without_gap(ticks[node], 2), ticks[node]
            assert instant_of(ticks[node][0]) < began + timedelta(seconds=4)
    even, odd = ([tick for tick in ticks[CHANGED] if instant_of(tick).second % 2 == rest] for rest in (0, 1))
    assert ticks[CHANGED] == even + odd
    assert without_gap(even, 2)
    assert without_gap(odd, 2)
    assert changed is not None
    # It counts from the last confirmation of the version before it.
    assert changed - timedelta(seconds=2) < instant_of(odd[0]) < changed + timedelta(seconds=60)
    assert " ERROR" not in processes.logs()


def is_odd(tick: str) -> bool:
    return instant_of(tick).second % 2 == 1


def caught_up(beats: Beats, node: str, end: datetime) -> bool:
    tick = beats.tick(node)
    return int(tick["last"]) / 1000 > end.timestamp() and "unsent" not in tick
