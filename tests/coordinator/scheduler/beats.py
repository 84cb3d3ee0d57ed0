"""Beats of one installation on a real Redis, each with an app of its own, as in processes of their own."""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, _state

from coordinator import Coordinator
from coordinator.core.jobs.record import totals
from coordinator.core.store.client import Store
from coordinator.core.store.times import to_ms
from coordinator.scheduler.beat import Scheduler
from coordinator.scheduler.entry import Entry
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

FAST = 0.3


class Beats:
    def __init__(self, server: RedisServer, prefix: str, **settings: Any) -> None:
        self.server = server
        self.prefix = prefix
        self.settings = settings
        self.coordinator: Coordinator = self.app().coordinator
        self.store: Store = self.coordinator.store
        self.client: Any = self.store._client

    def app(self, broker: str = "", **conf: Any) -> Any:
        shared = set(_state._on_app_finalizers)
        app = Celery("shop", broker=broker or self.server.url(1), set_as_current=False)
        app.conf.update(conf, task_default_queue=self.prefix)
        Coordinator(app, **({"url": self.server.url(0), "prefix": self.prefix} | self.settings))
        app.finalize()
        # Celery shares each app's tasks with all later apps of the process.
        _state._on_app_finalizers = shared
        return app

    def beat(self, *sources: Callable[[], tuple[str, Iterable[Entry]]], **conf: Any) -> Scheduler:
        app = self.app(**conf)
        for source in sources:
            app.coordinator.schedule_source(source)
        return Scheduler(app)

    def tick(self, name: str) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in self.client.hgetall(self.store.key("tick", name)).items()}

    def ids(self) -> list[str]:
        """Of all jobs of ticks, by instant; each was written once."""
        return sorted((job_id for job_id in self.ids_in_any_order() if "@run:" not in job_id), key=instant_of)

    def _created(self) -> int:
        counted = totals(self.store.read("HGETALL", self.store.key("counts")))
        return sum(number for (what, _), number in counted.items() if what == "created")

    def ids_in_any_order(self) -> set[str]:
        """Of all jobs; each was written once."""
        count, names = -1, list[bytes]()
        while count != (count := self._created()):  # else one came meanwhile
            names = list(self.client.scan_iter(self.store.key("job", "*")))
        assert count == len([name for name in names if not self.client.hexists(name, "alias")])
        return {name.decode()[len(self.store.key("job", "")) :] for name in names}

    def absent(self, name: str, since: datetime) -> None:
        """As if no beat had run since then."""
        self.client.hset(self.store.key("tick", name), "last", to_ms(since))

    def missed_hour(self, name: str = "n") -> datetime:
        """The hour that has begun, as if no beat had taken it."""
        hour = self.now().replace(minute=0, second=0, microsecond=0)
        self.absent(name, hour - timedelta(seconds=1))
        return hour

    def take(self, name: str, instant: datetime, claim: int, token: str = "dead") -> Any:
        """What a beat does before it dies: it takes a tick."""
        at = to_ms(instant)
        given = name, self.tick(name)["hash"], self.tick(name).get("other", ""), at, 0, 0, token, claim
        return self.store.step("tick_take", *given, "", 0, at, "dead beat", 100)

    def now(self) -> datetime:
        seconds, micros = self.client.time()
        return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)

    def messages(self) -> list[Any]:
        """What was published, the latest first."""
        with self.server.client(1) as broker:
            return [json.loads(text) for text in broker.lrange(self.prefix, 0, -1)]


def source(*entries: Entry, version: str = "1") -> Callable[[], tuple[str, Iterable[Entry]]]:
    def members() -> tuple[str, Iterable[Entry]]:
        return version, entries

    return members


def entry(name: str = "n", schedule: Any = FAST, **rest: Any) -> Entry:
    return Entry(name, schedule, **({"task": "sync", "key": name} | rest))


def run(*beats: Scheduler, until: Callable[[], object], seconds: float = 60) -> float:
    """Tick as beat does, each beat in turn, without its waiting. Returns how long the slowest tick took."""
    slowest = 0.0

    def round_() -> object:
        nonlocal slowest
        for beat in beats:
            began = time.monotonic()
            assert 0 < beat.tick() <= 1
            slowest = max(slowest, time.monotonic() - began)
        return until()

    if not until():
        wait_until(round_, seconds)
    return slowest


def pass_time(beats: Beats, seconds: float, *ticking: Scheduler) -> None:
    until = beats.now() + timedelta(seconds=seconds)
    run(*ticking, until=lambda: beats.now() > until)


def instant_of(tick: str) -> datetime:
    return datetime.fromisoformat(tick.rpartition("@")[2])


def without_gap(ticks: Iterable[str], step: float = FAST) -> bool:
    """Are these, in order, the ticks of one entry, none missing, none twice?"""
    at = [instant_of(tick) for tick in ticks]
    return at == [at[0] + n * timedelta(seconds=step) for n in range(len(at))]


def look_again(beat: Scheduler) -> None:
    """The next tick is a round: the beat reads its sources and the overdue ticks."""
    beat._round_at = 0.0
    beat.tick()
