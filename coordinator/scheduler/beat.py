"""The Celery beat scheduler: any number of beats, each tick once. `celery -A … beat -S coordinator.scheduler.Scheduler`

A tick is an entry's name and an instant; the job or task that it starts has the id `<name>@<instant>`. Redis is
authoritative. For each entry it holds the entry's hash and the last instant that a beat took: `tick:<name>` {source
hash last next, unsent token till}. The time is the server's: its last answer, and the seconds since.

A tick is taken, sent and done. `tick_take` moves `last` and notes the instant as unsent; `tick_done` removes the note.
When a beat dies in between, the tick stays unsent. After `CLAIM` seconds any other beat takes it over and sends it
under the same id, and until then the entry's next instant waits. So no tick is lost, and no job is doubled, since
Redis knows its id. An ordinary task is sent twice, under one id, if its beat dies between publishing and `tick_done`.

Beats may read different versions of a source. Each second a beat stands for the version that it reads:

* A beat that stood for the current version and now reads another has seen the change, and makes that one current.
* Any other beat (it just started, reads an old file, or a replica that lags) follows. Its entries rest until its
  version is the current one, or until no beat has stood for the current one for `LAPSE` seconds.

So two beats with two versions never take turns. One step moves a source's version and all its hashes together, and
`tick_take` refuses beats that still have an old hash. A new or changed entry counts from that moment.

After an absence, `entries.due` says which instants are due. `tick` raises nothing. While Redis is away, the beat says
so once, tries each second, and then catches up. A source that the beat cannot read keeps its entries. The beat names an
entry that is wrong, and leaves it out.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from math import inf
from typing import Any, Protocol, Unpack, cast

from celery import Celery, beat
from celery.schedules import crontab
from celery.utils.log import get_logger
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from kombu.messaging import Producer

from coordinator.documents.registry import Documents
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.jobs.options import Options
from coordinator.jobs.submission import Submission
from coordinator.scheduler.entries import (
    Due,
    Entry,
    Plan,
    Reading,
    Source,
    schedule_of,
    tick_id,
)
from coordinator.store.client import Store
from coordinator.store.times import EPOCH, instant, milliseconds, to_ms

CLAIM = 5.0  # seconds in which a beat must send the tick that it took
LAPSE = 10.0  # seconds after which any version may replace one for which no beat stands
ROUND = 1.0  # seconds from one look at sources and overdue senders to the next

_PASSING = (StoreUnavailable, StoreRefused, OperationalError, OSError)

logger = get_logger(__name__)


class Host(Protocol):
    """The part of a Coordinator that a beat uses."""

    store: Store
    schedule_sources: Iterable[Source]
    documents: Documents

    def submit(
        self, keys: str | Sequence[str], signature: Mapping[str, object], /, **options: Unpack[Options]
    ) -> Submission: ...


def configured(app: Celery) -> Iterator[Entry]:
    """The entries of the setting `beat_schedule`; a keyed job's has `key`, and may have `when_busy` and `submit`."""
    table: dict[str, dict[str, Any]] = dict(app.conf.beat_schedule)
    if app.conf.result_backend and app.conf.result_expires and not app.backend.supports_autoexpire:
        cleanup = {"task": "celery.backend_cleanup", "schedule": crontab("0", "4"), "options": {"expires": 12 * 3600}}
        table.setdefault("celery.backend_cleanup", cleanup)
    for name, given in table.items():
        try:
            yield Entry(**{"name": name} | given)
        except TypeError as error:
            logger.error("schedule entry %r is left out: %s", name, error)


class Scheduler(beat.Scheduler):
    """Replaces Celery's own scheduler. `app.coordinator` gives Redis, the sources and `submit`."""

    def __init__(self, app: Celery, **options: object) -> None:
        host: Host | None = getattr(app, "coordinator", None)
        if host is None:
            raise SettingsError(f"the app {app.main!r} has no coordinator: write coordinator = Coordinator(app)")
        self._host = host
        self._store = host.store
        self._grace = timedelta(seconds=host.store.settings.misfire_grace)
        self._token = uuid.uuid4().hex
        self._readings: list[Reading] = []
        # The server's last answer in ms, and this process's monotonic seconds at that moment.
        self._clock = round(time.time() * 1000), time.monotonic()
        self._round_at = 0.0
        self._trouble = ""
        self._broker_away = False
        super().__init__(app, **options)

    def setup_schedule(self) -> None:
        """A beat that starts while Redis is away waits for it in `tick`. One whose Redis is too old ends."""

        def table() -> tuple[str, Iterator[Entry]]:
            return "", configured(self.app)

        self._store.check()
        self._host.documents.serve()
        self._readings = [Reading("beat_schedule", table, schedule_of)]
        seen: Counter[str] = Counter()
        for source in self._host.schedule_sources:
            name = f"{source.__module__}.{getattr(source, '__qualname__', type(source).__qualname__)}"
            seen[name] += 1
            self._readings.append(Reading(f"{name}#{seen[name]}" if seen[name] > 1 else name, source, schedule_of))

    @cached_property
    def connection(self) -> Connection:
        """To the broker, for ordinary tasks. It tries once at a time, so that keyed entries need not wait for it."""
        url = self.app.conf.broker_write_url
        return cast(Connection, self.app.connection(url, transport_options={"max_retries": 0}))

    @cached_property
    def producer(self) -> Producer:
        return cast(Producer, self.Producer(self.connection, auto_declare=False))

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
        wake = min([self._round_at, *(self._attend(plan) for plan in self._current())])
        return max(0.001, min(float(self.max_interval), wake - time.monotonic()))

    def _round(self) -> None:
        """Read the sources, stand for their versions, and take over the ticks that another beat left unsent."""
        new = [reading.again() for reading in self._readings]
        if any(new):
            names: set[str] = set()
            for reading in self._readings:
                reading.settle(names)
        overdue = {name for reading in self._readings if not reading.trouble for name in self._follow(reading)}
        for plan in self._current():
            if plan.entry.name in overdue:
                self._take(plan, Due(EPOCH))

    def _current(self) -> list[Plan]:
        return [plan for reading in self._readings if reading.base == reading.digest for plan in reading.plans.values()]

    def _follow(self, reading: Reading) -> set[str]:
        """Stand for the source's version. Returns the names of its entries whose tick is overdue."""
        entries: list[str | int] = ["none"]
        if reading.base != reading.digest:
            now = self._now()
            entries = ["all"]
            for name, plan in reading.plans.items():
                entries += [name, plan.hash, _ms(plan.schedule.next(now))]
        lapse = milliseconds(LAPSE)
        reply = self._store.step("schedule_follow", reading.name, reading.digest, reading.base, lapse, *entries)
        verdict, now_ms, lasts, overdue = reply
        self._heard(now_ms)
        if verdict == b"behind":
            if reading.base:
                logger.info("schedule source %s: this beat follows another one's version", reading.name)
            reading.base = ""
            return set()
        reading.base = reading.digest
        for plan, last in zip(reading.plans.values(), lasts, strict=False):
            plan.count_from(instant(float(last)))
        return {name.decode() for name in overdue}

    def _attend(self, plan: Plan) -> float:
        """Take and send the entry's due ticks. Returns when to look again, in monotonic seconds."""
        while plan.rest_until <= time.monotonic():
            now = self._now()
            found = plan.due(now, self._grace)
            if found is None:
                return time.monotonic() + (plan.next - now).total_seconds() if plan.next else inf
            self._take(plan, found)
        return plan.rest_until

    def _take(self, plan: Plan, what: Due) -> None:
        name, at = plan.entry.name, to_ms(what.instant)
        following = _ms(plan.schedule.next(what.instant))
        reply = self._store.step(
            "tick_take", name, plan.hash, at, following, self._token, milliseconds(CLAIM), int(what.sent)
        )
        verdict, which, last, now_ms = reply[0].decode(), *map(int, reply[1:])
        self._heard(now_ms)
        if verdict == "stale":  # the next round tells which version is current
            self._round_at, plan.rest_until = 0.0, time.monotonic() + ROUND
            return
        plan.count_from(instant(last))
        plan.unsent = instant(which) if verdict == "taken" else None
        if verdict == "held" and last < at:
            plan.rest_until = time.monotonic() + ROUND / 4
        if verdict == "passed":
            logger.warning("tick of %s passed over: no beat ran then, and it is older than %s", name, self._grace)
        if verdict == "taken":
            if what.missed:
                logger.warning("no beat ran for %d ticks of %s: this beat sends only the last one", what.missed, name)
            self._send(plan, instant(which))

    def _send(self, plan: Plan, at: datetime) -> None:
        entry = plan.entry
        if plan.sent != at:
            try:
                if self._now() - at <= self._grace:
                    self._start(entry, tick_id(entry.name, at))
                else:
                    logger.warning("tick of %s at %s passed over: no beat could send it in time", entry.name, at)
            except (StoreUnavailable, StoreRefused):
                raise
            except (OperationalError, OSError) as error:
                if not self._broker_away:
                    logger.error("ticks wait for the broker: %s", error)
                self._broker_away = True
                self.close()
                for other in self._current():
                    if other.entry.key is None:
                        other.rest_until = time.monotonic() + ROUND
                return
            except Exception:
                logger.exception("cannot send the tick of %s at %s", entry.name, at)
            plan.sent = at
        self._store.step("tick_done", entry.name, to_ms(at), self._token)
        plan.unsent = None

    def _start(self, entry: Entry, tick: str) -> None:
        args, kwargs, options = list(entry.args or ()), dict(entry.kwargs or {}), dict(entry.options or {})
        if entry.key is not None:
            job = self.app.signature(entry.task, args=args, kwargs=kwargs, options=options)
            asked: Options = {"when_busy": entry.when_busy, **entry.submit, "job_id": tick}
            submission = self._host.submit(entry.key, job, **asked)
            logger.info("tick %s: %s", tick, submission.outcome)
            return
        options = {"retry": False} | options | {"task_id": tick, "producer": self.producer}
        options["headers"] = {**(options.get("headers") or {}), "celery_beat_task": True}
        task = self.app.tasks.get(entry.task)
        send = task.apply_async if task else partial(self.app.send_task, entry.task)
        send(args, kwargs, **options)
        self._broker_away = False
        logger.info("tick %s: sent", tick)

    def _heard(self, now_ms: bytes | int) -> None:
        """Redis answered with its time."""
        self._clock = int(now_ms), time.monotonic()
        if self._trouble:
            logger.info("beat goes on, after: %s", self._trouble)
        self._trouble = ""

    def _now(self) -> datetime:
        """The server's time, or a little less."""
        server_ms, then = self._clock
        return instant(server_ms) + timedelta(seconds=time.monotonic() - then)


def _ms(at: datetime | None) -> int:
    return 0 if at is None else to_ms(at)
