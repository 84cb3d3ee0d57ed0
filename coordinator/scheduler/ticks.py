"""Sends the ticks that are due, and the runs that operators requested.

For an entry with a key, one atomic step of Redis takes the tick and puts its job in line; one round trip does many. For
an entry without, three steps follow each other, since the broker may be another server: take the tick, publish the
task, note the tick as sent.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, cast

from celery import Celery
from celery.utils.log import get_logger
from kombu.exceptions import OperationalError

from coordinator.core.jobs.options import SubmitOptions
from coordinator.core.jobs.request import RequestMaker
from coordinator.core.jobs.validation import OwnId
from coordinator.core.keyed_task.calls import KeyedTasks
from coordinator.core.store.client import Store
from coordinator.core.store.step import Call, many
from coordinator.core.store.steps import run_take, tick_done, tick_take
from coordinator.core.store.times import EPOCH, instant, milliseconds, to_ms
from coordinator.core.store.wire import Arg
from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable
from coordinator.scheduler.entry import run_id, tick_id
from coordinator.scheduler.entry_plan import Due, EntryPlan, number
from coordinator.scheduler.history import sender_of
from coordinator.scheduler.publisher import Publisher
from coordinator.scheduler.sources import Source

CLAIM = 5.0  # seconds after which another beat may send a tick that a beat took and did not send
REST = 0.25  # seconds after which a beat looks again at an entry whose tick another beat is sending
_CHUNK = 200  # ticks in one round trip
_NO_WORD = ""  # tells tick_take to send the tick; a word is only noted, such as `missed`

logger = get_logger("coordinator.scheduler.beat")


class BeatHost(Protocol):
    """The attributes of a Coordinator that a beat uses."""

    store: Store
    _requests: RequestMaker
    _schedule_sources: Iterable[Source]
    _keyed_tasks: KeyedTasks


class ServerTime:
    """The clock of the Redis server: the time in its last reply, plus the monotonic seconds since that reply."""

    def __init__(self) -> None:
        self._answer = round(time.time() * 1000), time.monotonic()

    def sync(self, server_ms: bytes | int) -> None:
        self._answer = int(server_ms), time.monotonic()

    def now(self) -> datetime:
        """The time of the Redis server, early by the time that its last reply took to arrive."""
        server_ms, then = self._answer
        return instant(server_ms) + timedelta(seconds=time.monotonic() - then)


class BrokerAway(Exception):
    """Raised if the task of an entry without a key could not be published, since the broker does not answer."""


class Ticks:
    """Sends the ticks of one beat process. `publisher`: the broker, for entries without a key. `most`: the number of
    ticks in the history of each entry. `grace`: age after which a missed instant is not sent (setting `misfire_grace`).
    """

    def __init__(self, app: Celery, host: BeatHost, clock: ServerTime, publisher: Publisher) -> None:
        self.most = 100
        self.grace = timedelta(seconds=host.store.settings.misfire_grace)
        self.token = uuid.uuid4().hex
        self._app = app
        self._store = host.store
        self._requests = host._requests
        self._clock = clock
        self._publisher = publisher
        self._beat = f"{socket.gethostname()}:{os.getpid()}"[-80:]

    def take(self, due_ticks: list[tuple[EntryPlan, Due]]) -> None:
        """Take and send the due ticks; those of entries with a key 200 in a round trip. Tries all, and then raises the
        first StoreUnavailable, StoreRefused or BrokerAway.
        """
        alone = [(plan, due) for plan, due in due_ticks if plan.entry.key is None or due.instant == EPOCH]
        jobs = [(plan, due) for plan, due in due_ticks if plan.entry.key is not None and due.instant != EPOCH]
        errors: list[Exception] = []
        for start in range(0, len(jobs), _CHUNK):
            chunk = jobs[start : start + _CHUNK]
            replies = many(self._store, [self._with_job(plan, due) for plan, due in chunk])
            errors += filter(None, map(self._settled, chunk, replies))
        for plan, due in alone:
            try:
                self._take_alone(plan, due)
            except (StoreUnavailable, StoreRefused, BrokerAway) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _with_job(self, plan: EntryPlan, due: Due) -> Call[list[str]]:
        if not due.sent:
            return self._taking(plan, due, "missed")
        try:
            job = self._job(plan, tick_id(plan.entry.name, due.instant), str(to_ms(due.instant)), due.instant)
        except (StoreUnavailable, StoreRefused):
            raise
        except InvalidJob as error:
            logger.error("cannot send the tick of %s at %s: %s", plan.entry.name, due.instant, error)
            return self._taking(plan, due, "failed", error)
        except Exception as error:
            logger.exception("cannot send the tick of %s at %s", plan.entry.name, due.instant)
            return self._taking(plan, due, "failed", error)
        return self._taking(plan, due, _NO_WORD, None, job)

    def _taking(
        self, plan: EntryPlan, due: Due, word: str, error: Exception | None = None, job: tuple[Arg, ...] = ()
    ) -> Call[list[str]]:  # fmt: skip
        """Make the call of the Redis step tick_take. `word`: what to note of the tick instead of sending it, `missed`
        or `failed`; "" to send. `job`: the arguments of the step job_submit, for an entry with a key.
        """
        following = plan.schedule.next(due.instant)
        times = to_ms(due.instant), to_ms(plan.last or EPOCH), 0 if following is None else to_ms(following)
        at, beat = to_ms(plan.fires(due.instant)), sender_of(self._beat, error)
        return tick_take.of(
            plan.entry.name, plan.hash, plan.other, *times, self.token, milliseconds(CLAIM), word, due.missed, at, beat,
            self.most, *job,
        )  # fmt: skip

    def _job(self, plan: EntryPlan, job_id: OwnId, which: str, instance: datetime | str) -> tuple[Arg, ...]:
        """The arguments of the Redis step job_submit for a tick or run: `which` names it in the history. All ticks of
        an entry share one draft of the job, unless the entry has `instance`.
        """
        entry = plan.entry
        draft = plan.draft
        if draft is None:
            args, kwargs, options = list(entry.args or ()), dict(entry.kwargs or {}), dict(entry.options or {})
            job = self._app.signature(entry.task, args=args, kwargs=kwargs, options=options)
            submit: SubmitOptions = {**entry.submit_options, "job_id": None}
            if entry.instance:
                submit["instance"] = instance
            assert entry.key is not None
            draft = self._requests.make(entry.key, job, submit)
            plan.draft = None if entry.instance else draft
        return job_id, *draft.step_args()[1:], "seldom", 1, "tick", f"{entry.name}\n{which}"

    def _settled(self, tick: tuple[EntryPlan, Due], reply: list[str] | Exception) -> Exception | None:
        plan, due = tick
        try:
            verdict, outcome = self._apply(plan, due, self._store.checked(reply))
        except (StoreUnavailable, StoreRefused) as error:
            return error
        if verdict == "sent":
            logger.info("tick %s: %s", tick_id(plan.entry.name, due.instant), outcome)
        return None

    def _apply(self, plan: EntryPlan, due: Due, reply: list[str]) -> tuple[str, str]:
        """Apply the reply of the Redis step tick_take to the plan of the entry. Returns the step's verdict and the
        outcome of the job's submit, which is "" if no job was submitted.

        Verdicts: `sent`; `taken`: this beat must publish the task; `passed`: missed, failed, paused or skipped; `held`:
        another beat is sending; `over`: taken already; `early`: not due by the clock of Redis; `stale`: this beat's
        entry is outdated.
        """
        verdict, which, last, now_ms, outcome = reply
        self._clock.sync(int(now_ms))
        if verdict == "stale":  # wait for the next round, which learns the current version
            plan.rest_until = time.monotonic() + 4 * REST
            return verdict, outcome
        plan.count_from(instant(int(last)))
        plan.unsent = instant(int(which)) if verdict == "taken" else None
        if verdict == "early" or (verdict == "held" and int(last) < to_ms(due.instant)):
            plan.rest_until = time.monotonic() + REST
        if verdict == "passed" and outcome == "missed":
            logger.warning("%s missed ticks of %s are not sent", number(due.missed), plan.entry.name)
        if verdict in ("sent", "taken") and due.missed:
            logger.warning("%s ticks of %s were missed: only the last is sent", number(due.missed), plan.entry.name)
        return verdict, outcome

    def _take_alone(self, plan: EntryPlan, due: Due) -> None:
        """Take and send the tick of an entry without a key, or a tick of any entry that a beat took and did
        not send.
        """
        reply = self._taking(plan, due, _NO_WORD if due.sent else "missed").run(self._store)
        if self._apply(plan, due, reply)[0] != "taken" or plan.unsent is None:
            return
        at, word, error = plan.unsent, "sent", None
        if self._clock.now() - at > self.grace + timedelta(seconds=plan.entry.jitter):
            logger.warning("tick of %s at %s is not sent: it is older than misfire_grace", plan.entry.name, at)
            word = "missed"
        elif plan.entry.key is not None:
            self._settled((plan, Due(at)), self._with_job(plan, Due(at)).run(self._store))
            return
        elif plan.sent != at:
            word, error = self._published(plan, tick_id(plan.entry.name, at))
            plan.sent = at
        noted = due.missed, to_ms(plan.fires(at)), sender_of(self._beat, error), self.most
        tick_done(self._store, plan.entry.name, to_ms(at), self.token, word, *noted)
        plan.unsent = None

    def run(self, plan: EntryPlan, run_token: str) -> None:
        """Submit or publish the run of an entry that an operator requested with `run_now`; `run_token`
        identifies it.
        """
        entry, word, job = plan.entry, _NO_WORD, tuple[Arg, ...]()
        error: Exception | None = None
        if entry.key is not None:
            try:
                job = self._job(plan, run_id(entry.name, run_token), f"!{run_token}", f"run:{run_token}")
            except (StoreUnavailable, StoreRefused):
                raise
            except Exception as failure:
                logger.exception("cannot make the job of a requested run of the schedule entry %s", entry.name)
                word, error = "failed", failure
        verdict, outcome = self._run_taken(entry.name, run_token, word, error, job)
        if verdict == "taken":
            self._run_taken(entry.name, run_token, *self._published(plan, run_id(entry.name, run_token)))
        if verdict == "sent":
            logger.info("run %s: %s", run_id(entry.name, run_token), outcome)

    def _run_taken(
        self, name: str, run_token: str, word: str, error: Exception | None, job: tuple[Arg, ...] = ()
    ) -> tuple[str, str]:  # fmt: skip
        args = name, run_token, self.token, milliseconds(CLAIM), word, sender_of(self._beat, error), self.most
        return run_take(self._store, *args, *job)

    def _published(self, plan: EntryPlan, task_id: str) -> tuple[str, Exception | None]:
        """Publish the task of an entry without a key. Returns the word for the history, `sent` or `failed`, and the
        error if it failed. Raises BrokerAway if the broker does not answer.
        """
        entry = plan.entry
        args, kwargs, options = list(entry.args or ()), dict(entry.kwargs or {}), dict(entry.options or {})
        try:
            options = {"retry": False} | options | {"task_id": task_id, "producer": self._publisher.producer}
            own = cast(Mapping[str, object], options.get("headers") or {})
            options["headers"] = {**own, "celery_beat_task": True}
            task = self._app.tasks.get(entry.task)
            send = task.apply_async if task else partial(self._app.send_task, entry.task)
            send(args, kwargs, **options)
        except (OperationalError, OSError) as error:
            raise BrokerAway(str(error)) from error
        except Exception as error:
            logger.exception("cannot publish the task of the schedule entry %s", entry.name)
            return "failed", error
        logger.info("tick %s: sent", task_id)
        return "sent", None
