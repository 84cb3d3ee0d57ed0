"""Takes the ticks that are due, and sends them; likewise the runs that somebody wants out of turn.

One step of Redis takes a keyed tick and puts its job in line, and one round trip does many. An ordinary task is taken,
published and done in turn, since its broker may be another server.
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

from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable
from coordinator.jobs.options import SubmitOptions
from coordinator.jobs.request import RequestMaker
from coordinator.jobs.validation import OwnId
from coordinator.scheduler.entry import run_id, tick_id
from coordinator.scheduler.entry_plan import Due, EntryPlan, number
from coordinator.scheduler.history import sender_of
from coordinator.scheduler.publisher import Publisher
from coordinator.scheduler.sources import Source
from coordinator.store.client import Store
from coordinator.store.times import EPOCH, instant, milliseconds, to_ms
from coordinator.store.wire import Arg

CLAIM = 5.0  # seconds in which a beat must send the ordinary task that it took
REST = 0.25  # seconds until a beat looks again at a tick that another beat is sending
_CHUNK = 200
_NO_WORD = ""

logger = get_logger("coordinator.scheduler.beat")


class BeatHost(Protocol):
    """The part of a Coordinator that a beat uses."""

    store: Store
    _requests: RequestMaker
    _schedule_sources: Iterable[Source]


class ServerTime:
    """The server's time: its last answer in ms, and this process's monotonic seconds at that moment."""

    def __init__(self) -> None:
        self._answer = round(time.time() * 1000), time.monotonic()

    def sync(self, server_ms: bytes | int) -> None:
        self._answer = int(server_ms), time.monotonic()

    def now(self) -> datetime:
        """The server's time, or a little less."""
        server_ms, then = self._answer
        return instant(server_ms) + timedelta(seconds=time.monotonic() - then)


class BrokerAway(Exception):
    """An ordinary task could not be published."""


class Ticks:
    """Sends the ticks of one beat. `publisher`: for ordinary tasks. `most`: ticks of an entry that Redis notes."""

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
        """Take and send the due ticks, 200 jobs in a round trip. Raises the first error after all were tried."""
        alone = [(plan, due) for plan, due in due_ticks if plan.entry.key is None or due.instant == EPOCH]
        jobs = [(plan, due) for plan, due in due_ticks if plan.entry.key is not None and due.instant != EPOCH]
        errors: list[Exception] = []
        for start in range(0, len(jobs), _CHUNK):
            chunk = jobs[start : start + _CHUNK]
            replies = self._store.step_many("tick_take", [self._with_job(plan, due) for plan, due in chunk])
            errors += filter(None, map(self._settled, chunk, replies))
        for plan, due in alone:
            try:
                self._take_alone(plan, due)
            except (StoreUnavailable, StoreRefused, BrokerAway) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _with_job(self, plan: EntryPlan, due: Due) -> tuple[Arg, ...]:
        if not due.sent:
            return self._take_args(plan, due, "missed")
        try:
            job = self._job(plan, tick_id(plan.entry.name, due.instant), str(to_ms(due.instant)), due.instant)
        except (StoreUnavailable, StoreRefused):
            raise
        except InvalidJob as error:
            logger.error("cannot send the tick of %s at %s: %s", plan.entry.name, due.instant, error)
            return self._take_args(plan, due, "failed", error)
        except Exception as error:
            logger.exception("cannot send the tick of %s at %s", plan.entry.name, due.instant)
            return self._take_args(plan, due, "failed", error)
        return *self._take_args(plan, due, _NO_WORD), *job

    def _take_args(self, plan: EntryPlan, due: Due, word: str, error: Exception | None = None) -> tuple[Arg, ...]:
        """The arguments of the step tick_take, without the job's."""
        following = plan.schedule.next(due.instant)
        times = to_ms(due.instant), to_ms(plan.last or EPOCH), 0 if following is None else to_ms(following)
        noted = due.missed, to_ms(plan.fires(due.instant)), sender_of(self._beat, error), self.most
        return plan.entry.name, plan.hash, plan.other, *times, self.token, milliseconds(CLAIM), word, *noted

    def _job(self, plan: EntryPlan, job_id: OwnId, which: str, instance: datetime | str) -> tuple[Arg, ...]:
        """The arguments of the step job_submit. The ticks of an entry differ in id and instance alone."""
        entry = plan.entry
        draft = plan.draft
        if draft is None:
            args, kwargs, options = list(entry.args or ()), dict(entry.kwargs or {}), dict(entry.options or {})
            job = self._app.signature(entry.task, args=args, kwargs=kwargs, options=options)
            submit: SubmitOptions = {**entry.asked, "job_id": None}
            if entry.instance:
                submit["instance"] = instance
            assert entry.key is not None
            draft = self._requests.make(entry.key, job, submit)
            plan.draft = None if entry.instance else draft
        return job_id, *draft.step_args()[1:], "seldom", 1, "tick", f"{entry.name}\n{which}"

    def _settled(self, tick: tuple[EntryPlan, Due], reply: list[bytes] | Exception) -> Exception | None:
        plan, due = tick
        try:
            verdict, outcome = self._apply(plan, due, self._store.checked(reply))
        except (StoreUnavailable, StoreRefused) as error:
            return error
        if verdict == "sent":
            logger.info("tick %s: %s", tick_id(plan.entry.name, due.instant), outcome)
        return None

    def _apply(self, plan: EntryPlan, due: Due, reply: list[bytes]) -> tuple[str, str]:
        """Apply the reply of the step tick_take to the plan; return its verdict and the outcome of the job."""
        verdict, which, last, now_ms, outcome = (part.decode() for part in reply)
        self._clock.sync(int(now_ms))
        if verdict == "stale":  # the next round learns which version is current
            plan.rest_until = time.monotonic() + 4 * REST
            return verdict, outcome
        plan.count_from(instant(int(last)))
        plan.unsent = instant(int(which)) if verdict == "taken" else None
        if verdict == "early" or (verdict == "held" and int(last) < to_ms(due.instant)):
            plan.rest_until = time.monotonic() + REST
        if verdict == "passed" and outcome == "missed":
            logger.warning("%s missed ticks of %s passed over", number(due.missed), plan.entry.name)
        if verdict in ("sent", "taken") and due.missed:
            logger.warning("%s ticks of %s were missed: only the last is sent", number(due.missed), plan.entry.name)
        return verdict, outcome

    def _take_alone(self, plan: EntryPlan, due: Due) -> None:
        """Take an ordinary tick, or one that a beat left unsent, and send it."""
        reply = self._store.step("tick_take", *self._take_args(plan, due, _NO_WORD if due.sent else "missed"))
        if self._apply(plan, due, reply)[0] != "taken" or plan.unsent is None:
            return
        at, word, error = plan.unsent, "sent", None
        if self._clock.now() - at > self.grace + timedelta(seconds=plan.entry.jitter):
            logger.warning("tick of %s at %s passed over: no beat could send it in time", plan.entry.name, at)
            word = "missed"
        elif plan.entry.key is not None:
            self._settled((plan, Due(at)), self._store.step("tick_take", *self._with_job(plan, Due(at))))
            return
        elif plan.sent != at:
            word, error = self._published(plan, tick_id(plan.entry.name, at))
            plan.sent = at
        noted = due.missed, to_ms(plan.fires(at)), sender_of(self._beat, error), self.most
        self._store.step("tick_done", plan.entry.name, to_ms(at), self.token, word, *noted)
        plan.unsent = None

    def run(self, plan: EntryPlan, run_token: str) -> None:
        """Start the run that somebody wants under this token."""
        entry, word, job = plan.entry, _NO_WORD, tuple[Arg, ...]()
        error: Exception | None = None
        if entry.key is not None:
            try:
                job = self._job(plan, run_id(entry.name, run_token), f"!{run_token}", f"run:{run_token}")
            except (StoreUnavailable, StoreRefused):
                raise
            except Exception as failure:
                logger.exception("cannot run %s", entry.name)
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
        verdict, outcome = self._store.step("run_take", *args, *job)
        return verdict.decode(), outcome.decode()

    def _published(self, plan: EntryPlan, task_id: str) -> tuple[str, Exception | None]:
        """Publish the ordinary task; return its word in the history, and why it failed. Raises BrokerAway."""
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
            logger.exception("cannot send the task of %s", entry.name)
            return "failed", error
        logger.info("tick %s: sent", task_id)
        return "sent", None
