"""The Celery beat scheduler, for any number of beats: `celery -A … beat -S coordinator.scheduler.Scheduler`

A tick is an entry's name and an instant; the job or task that it starts has the id `<name>@<instant>`. The beats agree
through Redis: for each entry, the key `tick:<name>` has a hash of the entry and the last instant that a beat took.
Beats use the clock of the Redis server: its last reply, and the seconds since.

For an entry with a key, one atomic step takes a tick and puts the job in line. For an entry without (an ordinary task),
`tick_take` notes the instant as unsent, the beat publishes the task, and `tick_done` removes the note. When a beat dies
in between, any other beat takes the tick over after `CLAIM` seconds, and publishes under the same id; until then the
entry's next instant waits. So no tick is lost, and no job runs twice for a tick. An ordinary task is published twice,
under one id, if its beat dies between publishing and `tick_done`.

Beats may read different versions of a source of entries, as during a deployment. Redis notes one version of each source
as current, and each second a beat confirms the version that it reads:

* If a beat confirmed the current version before and now reads another, the source has changed: that version becomes
  current.
* Any other beat (just started, with an old file or a replica that lags) sends nothing of that source until its version
  is the current one, or until no beat has confirmed the current version for `LAPSE` seconds.

So two beats with two versions never alternate. One step replaces a source's version and the hashes of all its entries
together, and `tick_take` refuses a beat with an old hash. For a new or changed entry, instants after that moment are
due; for an entry whose version was not current, instants after the last confirmation of the other version. `tick_take`
also reads whether operators have paused or changed the entry: once their call has returned, no beat sends what they
stopped.

`EntryPlan.due` decides which of the instants that passed while no beat ran are still sent. `tick` raises nothing. While
Redis does not answer, the beat logs that once, tries each second, and then catches up. If a source cannot be read, the
beat keeps the entries that it read before. It logs an invalid entry, and leaves it out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from celery import Celery, beat
from celery.schedules import crontab
from celery.utils.log import get_logger

from coordinator.core.jobs.request import RequestMaker
from coordinator.core.store.steps import schedule_follow
from coordinator.core.store.times import EPOCH, instant, milliseconds, to_ms
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.scheduler.backfilling import Backfilling
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.entry_plan import Agenda, Due, EntryPlan
from coordinator.scheduler.publisher import Publisher
from coordinator.scheduler.sources import SourceState, Stored, names_of
from coordinator.scheduler.ticks import BeatHost, BrokerAway, ServerTime, Ticks

USUAL_FILE = "celerybeat-schedule"  # Celery's default, without -s
LAPSE = 10.0  # seconds without confirmation by a beat, after which any beat may replace a source's version
ROUND = 1.0  # seconds between two rounds, which read sources, overdue ticks and requested runs
FOLLOW = 0.25  # seconds between two looks at the backfills that are under way
MOST = 1000  # ticks that a beat sends in one call of `tick`
MANY = 1000  # entries; above that, the history of an entry has 10 ticks instead of 100

_FOLLOWS = (
    "schedule source %s: the other beats read another version; this beat sends none of its entries until they read "
    "this version, or none of them has run for %g s"
)
_PASSING = (StoreUnavailable, StoreRefused, BrokerAway, OSError)

logger = get_logger(__name__)


class News(NamedTuple):
    """What changed in Redis: `steering`: a number that grows with each schedule that an operator changes; `stored`: the
    version of the entries stored by code; `runs`: the runs that operators requested, each `<entry>\\n<token>`;
    `backfills`: those under way, the entry and how many of its jobs may be at work, in turns.
    """

    steering: bytes
    stored: bytes
    runs: list[bytes]
    backfills: list[bytes]


def configured(app: Celery, requests: RequestMaker) -> Iterator[Entry]:
    """Yield the entries of the app's setting `beat_schedule`, and Celery's own clean-up of results where it is needed.

    An entry with the field `key` is submitted as a job. An invalid entry is logged, and left out. `requests` checks
    that a job can be made of the entry.
    """
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
    """A beat scheduler for `celery beat -S`, in place of Celery's own. It uses the app's coordinator,
    `app.coordinator`: its Redis, and its sources of entries.

    With `-s FILE`, the file stays empty, and is touched each second while Redis answers, for health checks.
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
        self._backfilling = Backfilling(app, host)
        self._backfills: list[tuple[str, int]] = []  # entry -> how many jobs of its backfill may be at work
        self._follow_at = 0.0
        self._readings: list[SourceState] = []
        self._stored = Stored(host.store)
        self._agenda = Agenda()
        self._confirmed: list[tuple[str, str]] = []
        self._steering = ""
        self._others: dict[str, str] = {}  # entry -> the schedule that an operator set in place of the entry's own
        self._round_at = 0.0
        self._error = ""
        self._broker_away = False
        self._sign = None if schedule_filename == USUAL_FILE else Path(schedule_filename)
        super().__init__(app, **options)

    def setup_schedule(self) -> None:
        """List the sources of entries: `beat_schedule`, and the functions registered with the coordinator.

        Raises SettingsError if the Redis server is too old. If Redis does not answer, `tick` tries again.
        """

        def table() -> tuple[str, Iterator[Entry]]:
            return "", configured(self.app, self._host._requests)

        self._store.check()
        self._readings = [SourceState("beat_schedule", table)]
        self._readings += [SourceState(name, source) for name, source in names_of(self._host._schedule_sources)]

    def close(self) -> None:
        self._publisher.disconnect()
        super().close()

    @property
    def info(self) -> str:
        return f"    . ticks -> {self._store.where} {self._store.prefix}"

    def tick(self) -> float:
        """Send the ticks that are due. Returns the seconds until the next call; logs errors, and never raises."""
        try:
            return self._step()
        except Exception as error:
            if self._error != repr(error):
                logger.error(
                    "beat waits, and tries again each second: %s",
                    error,
                    exc_info=not isinstance(error, _PASSING),
                )
            self._error = repr(error)
            return ROUND

    def _step(self) -> float:
        if time.monotonic() >= self._round_at:
            self._round_at = time.monotonic() + ROUND
            self._round()
            if self._error:
                logger.info("beat goes on, after the error: %s", self._error)
            self._error = ""
        left = MOST
        while left > 0 and (plans := self._agenda.take(self._clock.now().timestamp(), left)):
            left -= len(plans)
            self._attend(plans)
        self._follow_backfills()
        wake = self._agenda.next() - self._clock.now().timestamp()
        follow = (self._follow_at if self._backfills else self._round_at) - time.monotonic()
        return max(0.001, min(float(self.max_interval), wake, self._round_at - time.monotonic(), follow))

    def _follow_backfills(self) -> None:
        if not self._backfills or time.monotonic() < self._follow_at:
            return
        self._follow_at = time.monotonic() + FOLLOW
        for name, at_once in self._backfills:
            if plan := self._plan(name):
                self._backfilling.go_on(plan, at_once)

    def _attend(self, plans: list[EntryPlan]) -> None:
        """Send the due ticks of these entries, and put each entry back into the agenda for its next instant."""
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
        """Delay all entries without a key by a second, since the broker does not answer. Entries with a key need no
        broker, and continue.
        """
        if not self._broker_away:
            logger.error("ticks of entries without a key wait for the broker: %s", error)
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
        """Read the sources of entries, confirm their versions in Redis, and apply the changes that operators and code
        made there. Runs once a second.
        """
        new = [reading.again(self._others) for reading in self._readings]
        if any(new):
            self._stored.version, self._confirmed = "", []  # so that a round that fails is repeated in full
            names: set[str] = set()
            for reading in self._readings:
                reading.settle(names)
        overdue: set[str] = set()
        # A source that was never read says nothing of its entries, which is not that it has none.
        for reading in [reading for reading in self._readings if reading.version is not None] or self._readings:
            names_overdue, news = self._follow(reading)
            overdue |= set() if reading.error else names_overdue
            reading.tell()
        steering, version, runs, backfills = news
        self._read_stored(version.decode())
        if self._steering != steering.decode():
            self._steer()
            self._steering = steering.decode()
        confirmed = [(reading.digest, reading.base) for reading in self._readings]
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            self._fill()
        if self._sign:
            with suppress(OSError):  # a health check reports a missing or old file
                self._sign.touch()
        self._backfills = [
            (name.decode(), int(most)) for name, most in zip(backfills[::2], backfills[1::2], strict=True)
        ]
        self._do(overdue, [name.decode().partition("\n")[::2] for name in runs])

    def _follow(self, reading: SourceState) -> tuple[set[str], News]:
        """Confirm in Redis the version that this beat read of a source.

        Returns the names of entries (of any source) with a tick that another beat took and did not send in time, and
        what changed in Redis.
        """
        which, entries = "none", list[str | int]()
        if reading.unknown:
            now = self._clock.now()
            which = "all"
            for name, plan in reading.plans.items():
                following = plan.schedule.next(now)
                entries += [name, plan.hash, 0 if following is None else to_ms(following), plan.about]
        lapse = milliseconds(LAPSE)
        reply = schedule_follow(self._store, reading.name, reading.digest, reading.base, lapse, which, *entries)
        verdict, now_ms, lasts, overdue, news = reply
        self._clock.sync(now_ms)
        if verdict == b"behind":
            if not reading.follows:
                logger.warning(_FOLLOWS, reading.name, LAPSE)
            reading.base, reading.follows = "", True
            return set(), News(*news)
        if reading.follows:
            logger.warning(
                "schedule source %s: this beat's version is current now, and its entries are sent", reading.name
            )
        reading.base, reading.follows = reading.digest, False
        for plan, last in zip(reading.plans.values(), lasts, strict=False):
            plan.count_from(instant(float(last)))
        return {name.decode() for name in overdue}, News(*news)

    def _read_stored(self, version: str) -> None:
        """Read the entries that code stored in Redis, if their `version` there is not the one that this beat has."""
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
        """Read from Redis the schedules that operators set in place of the entries' own, and apply those
        that changed.
        """
        names = [name.decode() for name in self._store.read("SMEMBERS", self._store.key("steered"))]
        texts = {name: self._store.read("HGET", self._store.key("tick", name), "other") for name in names}
        others = {name: text.decode() for name, text in texts.items() if text}
        for source in self._sources():
            for name in (self._others.keys() | others.keys()) & source.all.keys():
                if (plan := source.all[name]).other != (text := others.get(name, "")):
                    self._change(source, plan, text)
        self._others, self._confirmed = others, []

    def _change(self, source: SourceState | Stored, plan: EntryPlan, text: str) -> None:
        name = plan.entry.name
        try:
            changed = EntryPlan(plan.entry, text).after(plan)
        except Exception as error:
            logger.error(
                "schedule entry %r sends no ticks: wrong schedule %r, set by an operator: %s",
                name,
                text,
                error,
            )
            return
        if last := self._store.read("HGET", self._store.key("tick", name), "last"):
            changed.count_from(instant(int(last)))
        source.replace(name, changed)

    def _fill(self) -> None:
        """Put all entries of the current versions into the agenda, each at the time of its next instant."""
        self._agenda.clear()
        plans = list(self._plans())
        for plan in plans:
            self._put(plan)
        self._ticks.most = 10 if len(plans) > MANY else 100

    def _do(self, overdue: set[str], runs: list[tuple[str, str]]) -> None:
        """Send the ticks that another beat took and did not send, and the runs that operators requested.

        `overdue`: names of entries with such a tick; `runs`: pairs of an entry's name and the token of the request.
        """
        plans = [plan for name in overdue if (plan := self._plan(name))]
        try:
            self._ticks.take([(plan, Due(EPOCH)) for plan in plans])
            for name, token in runs:
                if plan := self._plan(name):
                    self._ticks.run(plan, token)
        except BrokerAway as error:
            self._rest_ordinary(error)
