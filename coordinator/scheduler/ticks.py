"""A beat takes the ticks that are due, and sends them; and the runs that somebody asked for.

A keyed tick is taken and its job put in line in one step of Redis, many of them in one round trip. An ordinary task is
taken, published and done, since its broker may be another server.
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

from coordinator.documents.registry import Documents
from coordinator.errors import StoreRefused, StoreUnavailable
from coordinator.jobs.options import Options
from coordinator.jobs.request import Requests
from coordinator.jobs.validation import OwnId
from coordinator.scheduler.due import Due, Plan
from coordinator.scheduler.entries import run_id, tick_id
from coordinator.scheduler.publisher import Publisher
from coordinator.scheduler.sources import Source
from coordinator.store.client import Store
from coordinator.store.times import EPOCH, instant, milliseconds, to_ms
from coordinator.store.wire import Arg

CLAIM = 5.0  # seconds in which a beat must send the ordinary task that it took
REST = 0.25  # seconds until a beat asks again for what another one is sending
_CHUNK = 200
_NO_WORD = ""

logger = get_logger("coordinator.scheduler.beat")


class Host(Protocol):
    """The part of a Coordinator that a beat uses."""

    store: Store
    requests: Requests
    schedule_sources: Iterable[Source]
    documents: Documents


class Clock:
    """The server's time: its last answer in ms, and this process's monotonic seconds at that moment."""

    def __init__(self) -> None:
        self._heard = round(time.time() * 1000), time.monotonic()

    def heard(self, server_ms: bytes | int) -> None:
        self._heard = int(server_ms), time.monotonic()

    def now(self) -> datetime:
        """The server's time, or a little less."""
        server_ms, then = self._heard
        return instant(server_ms) + timedelta(seconds=time.monotonic() - then)


class BrokerAway(Exception):
    """An ordinary task could not be published."""


class Ticks:
    """`publisher`: of ordinary tasks. `most`: so many ticks of an entry Redis notes for people."""

    def __init__(self, app: Celery, host: Host, clock: Clock, publisher: Publisher) -> None:
        self.most = 100
        self.grace = timedelta(seconds=host.store.settings.misfire_grace)
        self.token = uuid.uuid4().hex
        self._app = app
        self._store = host.store
        self._requests = host.requests
        self._clock = clock
        self._publisher = publisher
        self._beat = f"{socket.gethostname()}:{os.getpid()}"[-80:]

    def take(self, found: list[tuple[Plan, Due]]) -> None:
        """Take the due ticks, and send them: jobs 200 in a round trip. Raises the first error, after the others."""
        alone = [(plan, due) for plan, due in found if plan.entry.key is None or due.instant == EPOCH]
        jobs = [(plan, due) for plan, due in found if plan.entry.key is not None and due.instant != EPOCH]
        errors: list[Exception] = []
        for start in range(0, len(jobs), _CHUNK):
            chunk = jobs[start : start + _CHUNK]
            replies = self._store.step_many("tick_take", [self._with_job(plan, due) for plan, due in chunk])
            errors += filter(None, map(self._settled, chunk, replies))
        for plan, due in alone:
            try:
                self._alone(plan, due)
            except (StoreUnavailable, StoreRefused, BrokerAway) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _with_job(self, plan: Plan, due: Due) -> tuple[Arg, ...]:
        if not due.sent:
            return self._asked(plan, due, "missed")
        try:
            job = self._job(plan, tick_id(plan.entry.name, due.instant), str(to_ms(due.instant)), due.instant)
        except (StoreUnavailable, StoreRefused):
            raise
        except Exception:
            logger.exception("cannot send the tick of %s at %s", plan.entry.name, due.instant)
            return self._asked(plan, due, "failed")
        return *self._asked(plan, due, _NO_WORD), *job

    def _asked(self, plan: Plan, due: Due, word: str) -> tuple[Arg, ...]:
        """The arguments of the step tick_take, without the job's."""
        following = plan.schedule.next(due.instant)
        return (
            *(plan.entry.name, plan.hash, plan.other, to_ms(due.instant), 0 if following is None else to_ms(following)),
            *(self.token, milliseconds(CLAIM), word, due.missed, to_ms(plan.fires(due.instant)), self._beat, self.most),
        )

    def _job(self, plan: Plan, job_id: OwnId, which: str, instance: datetime | str) -> tuple[Arg, ...]:
        """The arguments of the step job_submit. A tick differs from the one before by its id alone, or its instance."""
        entry = plan.entry
        draft = plan.draft
        if draft is None:
            args, kwargs, options = list(entry.args or ()), dict(entry.kwargs or {}), dict(entry.options or {})
            job = self._app.signature(entry.task, args=args, kwargs=kwargs, options=options)
            asked: Options = {"when_busy": entry.when_busy, **entry.submit, "job_id": None}
            if entry.instance:
                asked["instance"] = instance
            assert entry.key is not None
            draft = self._requests.make(entry.key, job, asked)
            plan.draft = None if entry.instance else draft
        return job_id, *draft.step_args()[1:], "seldom", 1, "tick", f"{entry.name}\n{which}"

    def _settled(self, asked: tuple[Plan, Due], reply: list[bytes] | Exception) -> Exception | None:
        plan, due = asked
        try:
            verdict, outcome = self._heard(plan, due, self._store.checked(reply))
        except (StoreUnavailable, StoreRefused) as error:
            return error
        if verdict == "sent":
            logger.info("tick %s: %s", tick_id(plan.entry.name, due.instant), outcome)
        return None

    def _heard(self, plan: Plan, due: Due, reply: list[bytes]) -> tuple[str, str]:
        """Take in the answer of Redis to a taking: its verdict and the outcome of the job."""
        verdict, which, last, now_ms, outcome = (part.decode() for part in reply)
        self._clock.heard(int(now_ms))
        if verdict == "stale":  # the next round tells which version is current
            plan.rest_until = time.monotonic() + 4 * REST
            return verdict, outcome
        plan.count_from(instant(int(last)))
        plan.unsent = instant(int(which)) if verdict == "taken" else None
        if verdict == "early" or (verdict == "held" and int(last) < to_ms(due.instant)):
            plan.rest_until = time.monotonic() + REST
        if verdict == "passed" and outcome == "missed":
            logger.warning("%s ticks of %s passed over: no beat ran then", due.missed or "older", plan.entry.name)
        if verdict in ("sent", "taken") and due.missed:
            logger.warning(
                "no beat ran for %d ticks of %s: this beat sends only the last one", due.missed, plan.entry.name
            )
        return verdict, outcome

    def _alone(self, plan: Plan, due: Due) -> None:
        """Take an ordinary tick, or one that a beat left unsent, and send it."""
        reply = self._store.step("tick_take", *self._asked(plan, due, _NO_WORD if due.sent else "missed"))
        if self._heard(plan, due, reply)[0] != "taken" or plan.unsent is None:
            return
        at, word = plan.unsent, "sent"
        if self._clock.now() - at > self.grace + timedelta(seconds=plan.entry.jitter):
            logger.warning("tick of %s at %s passed over: no beat could send it in time", plan.entry.name, at)
            word = "missed"
        elif plan.entry.key is not None:
            self._settled((plan, Due(at)), self._store.step("tick_take", *self._with_job(plan, Due(at))))
            return
        elif plan.sent != at:
            word = self._published(plan, tick_id(plan.entry.name, at))
            plan.sent = at
        noted = due.missed, to_ms(plan.fires(at)), self._beat, self.most
        self._store.step("tick_done", plan.entry.name, to_ms(at), self.token, word, *noted)
        plan.unsent = None

    def run(self, plan: Plan, asked: str) -> None:
        """Start the run that somebody asked for with this token."""
        entry, word, job = plan.entry, _NO_WORD, tuple[Arg, ...]()
        if entry.key is not None:
            try:
                job = self._job(plan, run_id(entry.name, asked), f"!{asked}", f"run:{asked}")
            except (StoreUnavailable, StoreRefused):
                raise
            except Exception:
                logger.exception("cannot run %s", entry.name)
                word = "failed"
        verdict, outcome = self._run_taken(entry.name, asked, word, job)
        if verdict == "taken":
            self._run_taken(entry.name, asked, self._published(plan, run_id(entry.name, asked)), ())
        if verdict == "sent":
            logger.info("run %s: %s", run_id(entry.name, asked), outcome)

    def _run_taken(self, name: str, asked: str, word: str, job: tuple[Arg, ...]) -> tuple[str, str]:
        given = name, asked, self.token, milliseconds(CLAIM), word, self._beat, self.most
        verdict, outcome = self._store.step("run_take", *given, *job)
        return verdict.decode(), outcome.decode()

    def _published(self, plan: Plan, task_id: str) -> str:
        """Publish the ordinary task; its word in the log. Raises BrokerAway."""
        entry = plan.entry
        args, kwargs, given = list(entry.args or ()), dict(entry.kwargs or {}), dict(entry.options or {})
        try:
            options = {"retry": False} | given | {"task_id": task_id, "producer": self._publisher.producer}
            own = cast(Mapping[str, object], options.get("headers") or {})
            options["headers"] = {**own, "celery_beat_task": True}
            task = self._app.tasks.get(entry.task)
            send = task.apply_async if task else partial(self._app.send_task, entry.task)
            send(args, kwargs, **options)
        except (OperationalError, OSError) as error:
            raise BrokerAway(str(error)) from error
        except Exception:
            logger.exception("cannot send the task of %s", entry.name)
            return "failed"
        logger.info("tick %s: sent", task_id)
        return "sent"
