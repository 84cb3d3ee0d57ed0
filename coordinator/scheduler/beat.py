"""The Celery beat scheduler: any number of beats, each tick once. `celery -A … beat -S coordinator.scheduler.Scheduler`

A tick is an entry's name and an instant; the job or task that it starts has the id `<name>@<instant>`. Redis is
authoritative. For each entry it holds the entry's hash and the last instant that a beat took: `tick:<name>`. The time
is the server's: its last answer, and the seconds since.

One step takes a tick and puts its job in line. An ordinary task is taken, published and done: `tick_take` notes the
instant as unsent, `tick_done` removes the note. When a beat dies in between, any other beat takes it over after `CLAIM`
seconds, and sends it under the same id; until then the entry's next instant waits. So no tick is lost, and no job is
doubled. An ordinary task is sent twice, under one id, if its beat dies between publishing and `tick_done`.

Beats may read different versions of a source. Each second a beat stands for the version that it reads:

* A beat that stood for the current version and now reads another has seen the change, and makes that one current.
* Any other beat (it just started, reads an old file, or a replica that lags) follows. Its entries rest until its
  version is the current one, or until no beat has stood for the current one for `LAPSE` seconds.

So two beats with two versions never take turns. One step moves a source's version and all its hashes together, and
`tick_take` refuses beats that still have an old hash. A new or changed entry counts from that moment; one that rested
counts from when the last beat stood for the other version. `tick_take` also sees what operators said of the entry: once
their act has returned, no beat sends what they stopped.

After an absence, `due` says which instants are due. `tick` raises nothing. While Redis is away, the beat says so once,
tries each second, and then catches up. A source that the beat cannot read keeps its entries. The beat names an entry
that is wrong, and leaves it out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from celery import Celery, beat
from celery.schedules import crontab
from celery.utils.log import get_logger

from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.jobs.request import RequestMaker
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.entry_plan import Agenda, Due, EntryPlan
from coordinator.scheduler.publisher import Publisher
from coordinator.scheduler.sources import SourceState, Stored
from coordinator.scheduler.ticks import BeatHost, BrokerAway, ServerTime, Ticks
from coordinator.store.times import EPOCH, instant, milliseconds, to_ms

USUAL_FILE = "celerybeat-schedule"  # where nobody named another with -s
LAPSE = 10.0  # seconds after which any version may replace one for which no beat stands
ROUND = 1.0  # seconds from one look at sources and overdue senders to the next
MOST = 1000  # ticks that a beat takes before it looks at its sources again
MANY = 1000  # entries; above that, Redis notes fewer ticks of each

_FOLLOWS = "schedule source %s: another version counts; this beat's counts once no beat has had that one for %g s"
_PASSING = (StoreUnavailable, StoreRefused, BrokerAway, OSError)

logger = get_logger(__name__)


class News(NamedTuple):
    """The news of a round: the versions of operators' acts and of stored entries, and the runs that somebody wants."""

    steering: bytes
    stored: bytes
    asked: list[bytes]


def configured(app: Celery, requests: RequestMaker) -> Iterator[Entry]:
    """Yield the entries of the setting `beat_schedule`; a keyed job has `key`, maybe also `when_busy` and `submit`."""
    table: dict[str, dict[str, Any]] = dict(app.conf.beat_schedule)
    if app.conf.result_backend and app.conf.result_expires and not app.backend.supports_autoexpire:
        cleanup = {"task": "celery.backend_cleanup", "schedule": crontab("0", "4"), "options": {"expires": 12 * 3600}}
        table.setdefault("celery.backend_cleanup", cleanup)
    tasks = [task for task in app.tasks if not task.startswith(("celery.", "coordinator."))]
    for name, row in table.items():
        try:
            entry = Entry.from_table(name, row)
            entry.planned()
            entry.check_job(requests, if_unknown="wait")
        except (TypeError, ValueError) as error:
            logger.error("schedule entry %r is left out: %s", name, error)
            continue
        if tasks and entry.task not in app.tasks:
            near = get_close_matches(entry.task, tasks, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            logger.warning("schedule entry %r: this app has no task %r%s", name, entry.task, hint)
        yield entry


class Scheduler(beat.Scheduler):
    """Replaces Celery's own scheduler. `app.coordinator` gives Redis, the sources and the requests.

    Celery's file of the schedule (`-s FILE`) stays empty: each round with Redis touches it, as a sign of life.
    """

    def __init__(self, app: Celery, schedule_filename: str = USUAL_FILE, **options: object) -> None:
        host: BeatHost | None = getattr(app, "coordinator", None)
        if host is None:
            raise SettingsError(f"the app {app.main!r} has no coordinator: write coordinator = Coordinator(app)")
        self._host = host
        self._store = host.store
        self._clock = ServerTime()
        self._publisher = Publisher(app)
        self._ticks = Ticks(app, host, self._clock, self._publisher)
        self._readings: list[SourceState] = []
        self._stored = Stored(host.store)
        self._agenda = Agenda()
        self._standing: list[tuple[str, str]] = []
        self._steering = ""
        self._others: dict[str, str] = {}  # the schedules that operators gave entries
        self._round_at = 0.0
        self._trouble = ""
        self._broker_away = False
        self._sign = None if schedule_filename == USUAL_FILE else Path(schedule_filename)
        super().__init__(app, **options)

    def setup_schedule(self) -> None:
        """Name the sources. While Redis is away, `tick` waits for it; a Redis that is too old ends the beat."""

        def table() -> tuple[str, Iterator[Entry]]:
            return "", configured(self.app, self._host._requests)

        self._store.check()
        self._readings = [SourceState("beat_schedule", table)]
        seen: Counter[str] = Counter()
        for source in self._host._schedule_sources:
            name = f"{source.__module__}.{getattr(source, '__qualname__', type(source).__qualname__)}"
            seen[name] += 1
            self._readings.append(SourceState(f"{name}#{seen[name]}" if seen[name] > 1 else name, source))

    def close(self) -> None:
        self._publisher.disconnect()
        super().close()

    @property
    def info(self) -> str:
        return f"    . ticks -> {self._store.where} {self._store.prefix}"

    def tick(self) -> float:
        """Send the ticks that are due. Returns the seconds until there is more to do; never raises."""
        try:
            return self._step()
        except Exception as error:
            if self._trouble != (trouble := repr(error)):
                logger.error("beat waits: %s", error, exc_info=not isinstance(error, _PASSING))
            self._trouble = trouble
            return ROUND

    def _step(self) -> float:
        if time.monotonic() >= self._round_at:
            self._round_at = time.monotonic() + ROUND
            self._round()
            if self._trouble:
                logger.info("beat goes on, after: %s", self._trouble)
            self._trouble = ""
        left = MOST
        while left > 0 and (plans := self._agenda.take(self._clock.now().timestamp(), left)):
            left -= len(plans)
            self._attend(plans)
        wake = self._agenda.next() - self._clock.now().timestamp()
        return max(0.001, min(float(self.max_interval), wake, self._round_at - time.monotonic()))

    def _attend(self, plans: list[EntryPlan]) -> None:
        """Send what is due of these plans, and put each back for its next time."""
        now = self._clock.now()
        try:
            self._ticks.take([(plan, due) for plan in plans if (due := plan.due(now, self._ticks.grace))])
            if any(plan.entry.key is None for plan in plans):
                self._broker_away = False
        except BrokerAway as error:
            self._rest_ordinary(error)
        finally:
            for plan in plans:
                self._put(plan)

    def _put(self, plan: EntryPlan) -> None:
        now = self._clock.now().timestamp()
        rest = now + plan.rest_until - time.monotonic()
        if plan.unsent:
            self._agenda.put(max(now, rest), plan)
        elif plan.at is not None:
            self._agenda.put(max(plan.at.timestamp(), rest), plan)

    def _rest_ordinary(self, error: BrokerAway) -> None:
        """Let ordinary tasks wait for the broker; jobs go on."""
        if not self._broker_away:
            logger.error("ticks wait for the broker: %s", error)
        self._broker_away = True
        self._publisher.disconnect()
        for plan in self._plans():
            if plan.entry.key is None:
                plan.rest_until = time.monotonic() + ROUND

    def _sources(self) -> list[SourceState | Stored]:
        return [*self._readings, self._stored]

    def _plans(self) -> Iterator[EntryPlan]:
        return chain(*(source.current.values() for source in self._sources()))

    def _plan(self, name: str) -> EntryPlan | None:
        return next((plan for source in self._sources() if (plan := source.current.get(name))), None)

    def _round(self) -> None:
        """Read the sources, stand for their versions, and carry out what operators and code want."""
        new = [reading.again(self._others) for reading in self._readings]
        if any(new):
            self._stored.version, self._standing = "", []  # until Redis has answered all of this round
            names: set[str] = set()
            for reading in self._readings:
                reading.settle(names)
        overdue: set[str] = set()
        for reading in self._readings:
            names_overdue, news = self._follow(reading)
            overdue |= set() if reading.trouble else names_overdue
        steering, version, runs = news
        self._read_stored(version.decode())
        if self._steering != steering.decode():
            self._steer()
            self._steering = steering.decode()
        standing = [(reading.digest, reading.base) for reading in self._readings]
        if standing != self._standing:
            self._standing = standing
            self._fill()
        if self._sign:
            with suppress(OSError):  # whoever looks for the sign sees that there is none
                self._sign.touch()
        self._do(overdue, [name.decode().partition("\n")[::2] for name in runs])

    def _follow(self, reading: SourceState) -> tuple[set[str], News]:
        """Stand for the source's version. Returns the names of its entries whose tick is overdue, and the news."""
        entries: list[str | int] = ["none"]
        if reading.unknown:
            now = self._clock.now()
            entries = ["all"]
            for name, plan in reading.plans.items():
                following = plan.schedule.next(now)
                entries += [name, plan.hash, 0 if following is None else to_ms(following), plan.about]
        lapse = milliseconds(LAPSE)
        reply = self._store.step("schedule_follow", reading.name, reading.digest, reading.base, lapse, *entries)
        verdict, now_ms, lasts, overdue, news = reply
        self._clock.sync(now_ms)
        if verdict == b"behind":
            if not reading.follows:
                logger.warning(_FOLLOWS, reading.name, LAPSE)
            reading.base, reading.follows = "", True
            return set(), News(*news)
        if reading.follows:
            logger.warning("schedule source %s: this beat's version counts", reading.name)
        reading.base, reading.follows = reading.digest, False
        for plan, last in zip(reading.plans.values(), lasts, strict=False):
            plan.count_from(instant(float(last)))
        return {name.decode() for name in overdue}, News(*news)

    def _read_stored(self, version: str) -> None:
        """Read the entries that code stored, if they changed."""
        if version == self._stored.version:
            return
        former = dict(self._stored.current)
        names = {name for reading in self._readings for name in reading.plans}
        for name, plan in self._stored.again(names, self._others).items():
            if name in former:
                former[name].place = 0
            if plan is not None:
                self._put(plan)

    def _steer(self) -> None:
        """Read the schedules that operators gave entries instead of their own."""
        names = [name.decode() for name in self._store.read("SMEMBERS", self._store.key("steered"))]
        texts = {name: self._store.read("HGET", self._store.key("tick", name), "other") for name in names}
        others = {name: text.decode() for name, text in texts.items() if text}
        for source in self._sources():
            for name in (self._others.keys() | others.keys()) & source.all.keys():
                if (plan := source.all[name]).other != (text := others.get(name, "")):
                    self._change(source, plan, text)
        self._others, self._standing = others, []

    def _change(self, source: SourceState | Stored, plan: EntryPlan, text: str) -> None:
        name = plan.entry.name
        try:
            changed = EntryPlan(plan.entry, text).after(plan)
        except Exception as error:
            logger.error("schedule entry %r rests: its other schedule %r: %s", name, text, error)
            return
        if last := self._store.read("HGET", self._store.key("tick", name), "last"):
            changed.count_from(instant(int(last)))
        source.replace(name, changed)

    def _fill(self) -> None:
        """Fill the agenda with the plans that count."""
        self._agenda.clear()
        plans = list(self._plans())
        for plan in plans:
            self._put(plan)
        self._ticks.most = 10 if len(plans) > MANY else 100

    def _do(self, overdue: set[str], runs: list[tuple[str, str]]) -> None:
        """Take over the ticks that another beat left unsent, and start the wanted runs."""
        plans = [plan for name in overdue if (plan := self._plan(name))]
        try:
            self._ticks.take([(plan, Due(EPOCH)) for plan in plans])
            for name, token in runs:
                if plan := self._plan(name):
                    self._ticks.run(plan, token)
        except BrokerAway as error:
            self._rest_ordinary(error)
