"""The warden looks at parked jobs. When all sub-results of one have ended, the job goes on as if its attempt ended now.

The warden looks once after a job parked, at once when a worker tells the end of a sub-task, and else slowly. A job
stays parked as long as one of its sub-tasks runs, also where another failed: two attempts never overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from celery import Celery, states
from kombu.utils.json import dumps, loads

from coordinator.errors import CoordinatorError, UnknownJob
from coordinator.execution.backoff import delay_of
from coordinator.jobs import chain
from coordinator.jobs.record import Job, standing
from coordinator.jobs.spec import Cause, Handles
from coordinator.lanes.lanes import Lanes
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_PAUSE = 10.0  # seconds to the next look when nobody tells
_LOOK, _LATE, _OVER = range(3)  # functions/steps/parked.lua


class End(NamedTuple):
    """How a sub-result ended: `found` is its result where it ended `well`, else its error."""

    well: bool
    found: Any


class Parked:
    def __init__(self, lanes: Lanes, app: Celery) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.app = app

    def step(self) -> None:
        """Look at the jobs that are due. A look that fails is logged, and made again later."""
        for raw in self.store.step("parked_take", self.app.main, milliseconds(_PAUSE)):
            job_id, last, handles, what = raw[0].decode(), raw[1].decode(), loads(raw[2]), int(raw[3])
            try:
                self._look(job_id, last, handles, what)
            except CoordinatorError:
                raise
            except Exception:
                logger.exception("cannot look at the sub-results of job %s; again in %g s", job_id, _PAUSE)

    def _look(self, job_id: str, last: str, handles: Handles, what: int) -> None:
        ids, ends, open_ = handles["ids"], [], []
        for one in ids:
            ends.append(None if one is None else self._end_of(one))
            if one is not None and ends[-1] is None:
                if what == _LOOK:
                    return
                open_.append(one)
        if open_:
            self._stop(open_, job_id)
        if what == _OVER:
            return
        if open_:
            message = f"{len(open_)} of {len(ids)} sub-results had not ended within its time_limit; they were revoked"
            error: Cause = {"type": "TimedOut", "module": "coordinator.errors", "message": message}
            self._unpark(job_id, last, "failed", dumps(error))
            return
        self._unpark(job_id, last, *verdict(handles, ends))

    def _stop(self, ids: list[str], job_id: str) -> None:
        """Cancel those that are jobs, revoke those that are tasks."""
        tasks = []
        for one in ids:
            try:
                self.lanes.cancel(one, why=f"sub-result of job {job_id}, which is over", by="coordinator")
            except UnknownJob:
                tasks.append(one)
        if tasks:
            self.app.control.revoke(tasks, terminate=True)
        logger.warning("job %s: stopped %d of its sub-results", job_id, len(ids))

    def _end_of(self, task_id: str) -> End | None:
        """How one sub-result ended; None while it has not."""
        try:
            return _end_of_job(self.lanes.job(task_id))
        except UnknownJob:
            meta = self.app.backend.get_task_meta(task_id)
            if meta["status"] not in states.READY_STATES:
                return None
            return End(meta["status"] == states.SUCCESS, meta["result"])

    def _unpark(self, job_id: str, last: str, outcome: str, detail: str) -> None:
        job = standing(self.store, job_id)
        delay = delay_of(job.spec, job.tries, self.store.settings.retry_delay)
        following: tuple[str, str, int | str] = ("", "", "")
        if outcome == "succeeded" and (step := chain.following(job.spec, job.step)) is not None:
            outcome, following = "step", chain.advance(step)
        args = (job_id, last, outcome, detail, milliseconds(delay), "", *following)
        state = self.store.step("job_unpark", *args)
        logger.info("job %s: all sub-results ended; %s, now %s", job_id, outcome, state.decode() or "no longer parked")


def _end_of_job(job: Job) -> End | None:
    if not job.over:
        return None
    well = job.state == "succeeded"
    return End(well, job.result if well else job.error)


def verdict(handles: Handles, ends: Sequence[End | None]) -> tuple[str, str]:
    """The outcome and the detail of an attempt whose sub-results ended, each (well?, result or error)."""
    ids = handles["ids"]
    bad = [(one, end.found) for one, end in zip(ids, ends, strict=True) if end is not None and not end.well]
    if bad:
        message = f"{len(bad)} of {len(ids)} sub-results failed; {bad[0][0]}: {bad[0][1]}"
        return "raised", dumps({"type": "SubResultFailed", "message": message})
    values = [None if end is None else end.found for end in ends]
    try:
        return "succeeded", dumps(values[0] if handles["one"] else values)
    except (TypeError, ValueError) as error:
        message = f"the result of a sub-result is not JSON: {error}"
        return "failed", dumps({"type": "SubResultFailed", "message": message})
