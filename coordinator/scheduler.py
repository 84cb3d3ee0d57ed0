"""The Celery beat scheduler: any number of beats, each tick once. `celery -A … beat -S coordinator.scheduler.Scheduler`

A tick is an entry's name and an instant; the job or task it starts has the id `<name>@<instant>`. Redis holds, for each
entry, the hash of what it is and the last instant taken: `tick:<name>` {source hash last next, unsent token till}.

* Take, send, done. `tick_take` moves `last` and notes the instant as unsent, `tick_done` strikes it out. A beat that
  dies in between leaves it unsent: after `CLAIM` any other takes it over and sends it under the same id; until then the
  entry's next instant waits. So nothing is lost, and a job, whose id is known, is never doubled. An ordinary task is
  sent again, under the same id, when its beat died after publishing and before the note was struck out.
* Which version of a source is current: the one that beats stand for, each second. A beat that stood for it and reads
  another has seen the change, and makes that one current. One that has not (just started, an old file, a lagging
  replica) follows: its entries count once its version is the current one, or nobody stood for that one for `LAPSE`.
  So two beats with two versions never take turns. The script that moves the version moves all hashes; from then on
  `tick_take` refuses what others still think. A new or changed entry counts from that moment.
* The time is the server's: its last answer and the seconds since. What is due after an absence: `entries.due`.
* No exception leaves `tick`. Redis away: said once, tried each second, caught up. A source that cannot be read keeps
  the entries it had; an entry that is no good is named and left out.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import cached_property, partial
from math import inf
from typing import Any, Protocol

from celery import Celery, beat
from celery.schedules import crontab, schedule
from celery.utils.log import get_logger
from kombu.exceptions import OperationalError

from coordinator.documents import Documents
from coordinator.entries import (
    EPOCH,
    Crontab,
    Due,
    Entry,
    Every,
    Plan,
    Reading,
    Schedule,
    Source,
    from_ms,
    tick_id,
    to_ms,
)
from coordinator.errors import SettingsError, StoreRefused, StoreUnavailable
from coordinator.quartz import Quartz
from coordinator.store import Store, milliseconds

CLAIM = 5.0  # seconds in which a beat must have sent what it took
LAPSE = 10.0  # seconds after which a version that no beat stands for may be replaced by any other
ROUND = 1.0  # seconds from one look at sources and overdue senders to the next

_PASSING = (StoreUnavailable, StoreRefused, OperationalError, OSError)

logger = get_logger(__name__)


class Host(Protocol):
    """What beat needs of a Coordinator."""

    store: Store
    schedule_sources: Iterable[Source]
    documents: Documents

    def submit(self, keys: Any, signature: Any, /, **options: Any) -> Any: ...


def schedule_of(given: Any) -> Schedule:
    """Raises TypeError, or ValueError (QuartzError), for what is no schedule here."""
    if isinstance(given, Quartz | Every | Crontab):
        return given
    if isinstance(given, str):
        return Quartz(given)
    if isinstance(given, crontab):
        days = given.day_of_month, given.month_of_year, given.day_of_week
        return Crontab(given.minute, given.hour, *days, tz=given.tz)
    if type(given) is schedule and not given.relative:
        given = given.run_every
    if isinstance(given, timedelta):
        given = given.total_seconds()
    if isinstance(given, int | float) and not isinstance(given, bool):
        return Every(float(given))
    raise TypeError(f"{given!r} is no schedule here: give Quartz text, seconds, a timedelta, schedule or crontab")


def configured(app: Celery) -> Iterator[Entry]:
    """The entries that every app has: `beat_schedule`, with `key`, `when_busy`, `submit` where it is a keyed job."""
    table: dict[str, Any] = dict(app.conf.beat_schedule)
    if app.conf.result_backend and app.conf.result_expires and not app.backend.supports_autoexpire:
        cleanup = {"task": "celery.backend_cleanup", "schedule": crontab("0", "4"), "options": {"expires": 12 * 3600}}
        table.setdefault("celery.backend_cleanup", cleanup)
    for name, given in table.items():
        try:
            yield Entry(**{"name": name} | given)
        except TypeError as error:
            logger.error("schedule entry %r is left out: %s", name, error)


class Scheduler(beat.Scheduler):
    """Replaces all of Celery's own but its shell; `app.coordinator` is asked for Redis, sources and `submit`."""

    def __init__(self, app: Celery, *args: Any, **kwargs: Any) -> None:
        host: Host | None = getattr(app, "coordinator", None)
        if host is None:
            raise SettingsError(f"the app {app.main!r} has no coordinator: write coordinator = Coordinator(app)")
        self._host = host
        self._store = host.store
        self._grace = timedelta(seconds=host.store.settings.misfire_grace)
        self._token = uuid.uuid4().hex
        self._readings: list[Reading] = []
        # The server's ms, and our monotonic seconds when it said so.
        self._clock = round(time.time() * 1000), time.monotonic()
        self._round_at = 0.0
        self._trouble = ""
        self._broker_away = False
        super().__init__(app, *args, **kwargs)

    def setup_schedule(self) -> None:
        """Nothing is asked of Redis here: a beat that starts while it is away waits for it in `tick`."""

        def table() -> tuple[str, Iterator[Entry]]:
            return "", configured(self.app)

        self._host.documents.serve()
        self._readings = [Reading("beat_schedule", table, schedule_of)]
        seen: Counter[str] = Counter()
        for source in self._host.schedule_sources:
            name = f"{source.__module__}.{getattr(source, '__qualname__', type(source).__qualname__)}"
            seen[name] += 1
            self._readings.append(Reading(f"{name}#{seen[name]}" if seen[name] > 1 else name, source, schedule_of))

    @cached_property
    def connection(self) -> Any:
        """To the broker, for ordinary tasks. One try at a time: we try again ourselves, and keyed entries go on."""
        return self.app.connection(self.app.conf.broker_write_url, transport_options={"max_retries": 0})

    @cached_property
    def producer(self) -> Any:
        return self.Producer(self.connection, auto_declare=False)

    @property
    def info(self) -> str:
        return f"    . ticks -> {self._store.where} {self._store.prefix}"

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due. Returns the seconds until there is something to do; never raises."""
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
        """Look at the sources, stand for what they say, and take over what another beat left unsent."""
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
        """Stand for the source's version. Returns the names of all entries whose sender is overdue."""
        entries: list[str | int] = ["none"]
        if reading.base != reading.digest:
            now = self._now()
            entries = ["all"]
            for name, plan in reading.plans.items():
                entries += [name, plan.hash, _ms(plan.schedule.next(now))]
        lapse = milliseconds(LAPSE)
        reply = self._store.run("schedule_follow", reading.name, reading.digest, reading.base, lapse, *entries)
        verdict, now_ms, lasts, overdue = reply
        self._heard(now_ms)
        if verdict == b"behind":
            if reading.base:
                logger.info("schedule source %s: another beat's version is current", reading.name)
            reading.base = ""
            return set()
        reading.base = reading.digest
        for plan, last in zip(reading.plans.values(), lasts, strict=False):
            plan.count_from(from_ms(float(last)))
        return {name.decode() for name in overdue}

    def _attend(self, plan: Plan) -> float:
        """Take and send what is due. Returns when to look again, in monotonic seconds."""
        while plan.rest_until <= time.monotonic():
            now = self._now()
            found = plan.due(now, self._grace)
            if found is None:
                return time.monotonic() + (plan.next - now).total_seconds() if plan.next else inf
            self._take(plan, found)
        return plan.rest_until

    def _take(self, plan: Plan, what: Due) -> None:
        name, instant = plan.entry.name, to_ms(what.instant)
        following = _ms(plan.schedule.next(what.instant))
        reply = self._store.run(
            "tick_take", name, plan.hash, instant, following, self._token, milliseconds(CLAIM), int(what.sent)
        )
        verdict, which, last, now_ms = reply[0].decode(), *map(int, reply[1:])
        self._heard(now_ms)
        if verdict == "stale":  # the next round tells whose version is current
            self._round_at, plan.rest_until = 0.0, time.monotonic() + ROUND
            return
        plan.count_from(from_ms(last))
        plan.unsent = from_ms(which) if verdict == "taken" else None
        if verdict == "held" and last < instant:
            plan.rest_until = time.monotonic() + ROUND / 4
        if verdict == "passed":
            logger.warning("tick of %s passed over: missed, and older than %s", name, self._grace)
        if verdict == "taken":
            if what.missed:
                logger.warning("%d ticks of %s were missed: only the last is sent", what.missed, name)
            self._send(plan, from_ms(which))

    def _send(self, plan: Plan, instant: datetime) -> None:
        entry = plan.entry
        if plan.sent != instant:
            try:
                if self._now() - instant <= self._grace:
                    self._start(entry, tick_id(entry.name, instant))
                else:
                    logger.warning("tick of %s at %s passed over: could not be sent in time", entry.name, instant)
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
                logger.exception("tick of %s at %s cannot be sent", entry.name, instant)
            plan.sent = instant
        self._store.run("tick_done", entry.name, to_ms(instant), self._token)
        plan.unsent = None

    def _start(self, entry: Entry, tick: str) -> None:
        args, kwargs, options = list(entry.args or ()), dict(entry.kwargs or {}), dict(entry.options or {})
        if entry.key is not None:
            job = self.app.signature(entry.task, args=args, kwargs=kwargs, options=options)
            submission = self._host.submit(entry.key, job, when_busy=entry.when_busy, job_id=tick, **entry.submit)
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
        """Redis answered, and said what the time is."""
        self._clock = int(now_ms), time.monotonic()
        if self._trouble:
            logger.info("beat goes on, after: %s", self._trouble)
        self._trouble = ""

    def _now(self) -> datetime:
        """The server's time, rather a little less than more."""
        server_ms, then = self._clock
        return from_ms(server_ms) + timedelta(seconds=time.monotonic() - then)


def _ms(instant: datetime | None) -> int:
    return 0 if instant is None else to_ms(instant)
