"""Real beat processes over the tables of django-celery-beat in a PostgreSQL, killed at random."""

import os
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from tests.coordinator.scheduler.beats import Beats, instant_of, without_gap
from tests.fleet.test_beats import Beat
from tests.harness.long import long
from tests.harness.periodic_tasks import Tables, tables
from tests.harness.postgres import PostgresServer
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

KEYED = [f"keyed/{number}" for number in range(10)]
PLAIN = [f"plain/{number}" for number in range(5)]
CLOSE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name <> 'test'"


def test_three_beats_that_are_killed_send_and_count_each_instant_once(
    redis_server: RedisServer, postgres_server: PostgresServer, prefix: str, tmp_path: Path
) -> None:
    beats = Beats(redis_server, prefix)
    with postgres_server.database() as name:
        where = {"HOST": "127.0.0.1", "PORT": postgres_server.port, "USER": "tests", "NAME": name}
        own = {"application_name": "test"}
        environ = os.environ | {
            "TEST_DATABASE": f"postgresql://tests@127.0.0.1:{postgres_server.port}/{name}",
            "TEST_BROKER": redis_server.url(1),
            "COORDINATOR_URL": redis_server.url(0),
            "COORDINATOR_PREFIX": prefix,
        }
        started: list[Beat] = []

        def start() -> Beat:
            started.append(Beat(tmp_path / f"beat-{len(started)}.log", environ, "tables"))
            return started[-1]

        def close() -> None:
            with postgres_server.connect() as connection:
                connection.execute(CLOSE, [name])

        try:
            with tables(tmp_path.name, ENGINE="django.db.backends.postgresql", OPTIONS=own, **where) as rows:
                play(beats, rows, start, close, lambda: "\n".join(beat.log.read_text() for beat in started))
        finally:
            for beat in started:
                beat.kill()


def play(
    beats: Beats, rows: Tables, start: Callable[[], Beat], close: Callable[[], None], logs: Callable[[], str]
) -> None:
    """`misfire="all"`, since a kill while a task is sent, and one while rows change, may hold it up for above 10 s."""
    chance = random.Random()
    for name in KEYED:
        rows.add(name, every=0.5, headers={"coordinate": {"key": name, "misfire": "all"}})
    for name in PLAIN:
        rows.add(name, every=1, headers={"coordinate": {"misfire": "all"}})
    fleet = [start() for _ in range(3)]
    wait_until(lambda: all(beats.tick(name) for name in [*KEYED, *PLAIN]), what=logs)
    end, once, kills = beats.now() + timedelta(seconds=long(7, 60)), list[str](), 0
    while beats.now() < end:
        # Not each time: a change of which only a beat knows that is killed, and another one after it, wait for 10 s.
        if kills % 4 == 1:
            once.append(f"once/{len(once)}")
            rows.add(once[-1], clocked=rows.clocked(beats.now()), one_off=True)
        if kills % 4 == 3:
            close()
        kills += 1
        pause = beats.now() + timedelta(seconds=chance.uniform(0.3, 1.5))
        wait_until(lambda pause=pause: beats.now() > pause)  # type: ignore[misc]
        victim = chance.randrange(3)
        fleet[victim].kill()
        fleet[victim] = start()
    wait_until(lambda: not rows.rows.filter(one_off=True, enabled=True).exists(), what=logs)
    stopped = beats.now()
    # Each is as it was but for its interval, so nobody forgets what it was.
    for name in [*KEYED, *PLAIN]:
        rows.silently(name, interval=rows.interval(86400))
    rows.changed()
    wait_until(lambda: all(settled(beats, rows, name, stopped) for name in [*KEYED, *PLAIN]), what=logs)

    for name in KEYED:
        assert without_gap(ticks(beats, name), 0.5), name
    for name in PLAIN:
        assert without_gap(ticks(beats, name), 1), name
    for name in once:
        assert len(ticks(beats, name)) == 1, name
        assert rows.counted(name) == (instant_of(ticks(beats, name)[0]), 0)


def settled(beats: Beats, rows: Tables, name: str, stopped: datetime) -> bool:
    """All that the history says was sent is counted, and nothing more."""
    sent = [event for event in beats.coordinator.entries.history(name) if event.kind == "tick"]
    assert all(event.word not in ("failed", "missed") for event in sent), sent
    return rows.counted(name) == (sent[-1].at, len(ticks(beats, name))) and "unsent" not in beats.tick(name)


def ticks(beats: Beats, name: str) -> list[str]:
    """A task without a key may be published twice, under one id."""
    published = {message["headers"]["id"] for message in beats.messages()}
    return sorted((tick for tick in published | set(beats.ids()) if tick.startswith(f"{name}@")), key=instant_of)
