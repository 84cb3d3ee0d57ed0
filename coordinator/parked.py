"""The warden's look at parked jobs: have all sub-results ended? Then the job goes on, as if its attempt ended now.

Looked at once after parking, whenever the end of a sub-task is told, and else slowly. Never fail-fast: as long as one
of them runs, the job stays parked, so that two attempts never overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from celery import Celery, states
from celery.result import AsyncResult
from kombu.utils.json import dumps, loads

from coordinator import orders
from coordinator.attempt import Outcome, delay_of_job, failed
from coordinator.errors import CoordinatorError, UnknownJob, WouldDeadlock
from coordinator.lanes import Lanes
from coordinator.store import milliseconds
from coordinator.subresults import flattened
from coordinator.work import Work

logger = logging.getLogger(__name__)

_PAUSE = 10.0  # seconds to the next look when nobody tells
_LOOK, _LATE, _OVER = range(3)  # lua/parked_take.lua


class Parked:
    def __init__(self, lanes: Lanes, app: Celery) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.app = app

    def step(self) -> None:
        """Look at those whose time it is. What cannot be looked at is said, and looked at again later."""
        for raw in self.store.run("parked_take", self.app.main, milliseconds(_PAUSE)):
            job_id, last, handles, what = raw[0].decode(), raw[1].decode(), loads(raw[2]), int(raw[3])
            try:
                self._look(job_id, last, handles, what)
            except CoordinatorError:
                raise
            except Exception:
                logger.exception("cannot look at the sub-results of job %s; again in %g s", job_id, _PAUSE)

    def _look(self, job_id: str, last: str, handles: dict[str, Any], what: int) -> None:
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
            error = {"type": "TimedOut", "module": "coordinator.errors", "message": message}
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

    def _end_of(self, task_id: str) -> tuple[bool, Any] | None:
        """(well?, result or error); None while it has not ended."""
        try:
            job = self.lanes.job(task_id)
            return (
                (job.state == "succeeded", job.result if job.state == "succeeded" else job.error) if job.over else None
            )
        except UnknownJob:
            meta = self.app.backend.get_task_meta(task_id)
            if meta["status"] not in states.READY_STATES:
                return None
            return meta["status"] == states.SUCCESS, meta["result"]

    def _unpark(self, job_id: str, last: str, outcome: str, detail: str) -> None:
        found = self.store.call(lambda: self.store.client.hmget(self.store.key("job", job_id), "spec", "step"))
        spec, number, delay = loads(found[0] or b"{}"), int(found[1] or 0), delay_of_job(self.lanes, job_id)
        more: tuple[Any, Any, Any] = ("", "", "")
        if outcome == "succeeded" and (step := orders.following(spec, number)) is not None:
            outcome, more = "step", orders.advance(step)
        state, rung = self.store.run("job_unpark", job_id, last, outcome, detail, milliseconds(delay), *more)
        self.lanes.ring_all(rung)
        logger.info("job %s: all sub-results ended; %s, now %s", job_id, outcome, state.decode() or "no longer parked")


def verdict(handles: dict[str, Any], ends: Sequence[tuple[bool, Any] | None]) -> tuple[str, str]:
    """What follows once all sub-results ended, each (well?, result or error): outcome and detail, as of an attempt."""
    ids = handles["ids"]
    bad = [(one, end[1]) for one, end in zip(ids, ends, strict=True) if end is not None and not end[0]]
    if bad:
        message = f"{len(bad)} of {len(ids)} sub-results failed; {bad[0][0]}: {bad[0][1]}"
        return "raised", dumps({"type": "SubResultFailed", "message": message})
    values = [None if end is None else end[1] for end in ends]
    try:
        return "succeeded", dumps(values[0] if handles["one"] else values)
    except (TypeError, ValueError) as error:
        message = f"the result of a sub-result is not JSON: {error}"
        return "failed", dumps({"type": "SubResultFailed", "message": message})


def at_once(lanes: Lanes, work: Work, outcome: Outcome) -> Outcome:
    """Where tasks are run in place, the sub-results of an attempt have ended when it returns them."""

    def end_of(handle: AsyncResult) -> tuple[bool, Any]:
        try:
            job = lanes.job(handle.id)
        except UnknownJob:
            return handle.successful(), handle.result
        if not job.over:
            raise WouldDeadlock(f"sub-result {job.id} waits in the lane {job.key!r}, which is held while this job runs")
        return job.state == "succeeded", job.result if job.state == "succeeded" else job.error

    value = outcome.value
    handles = flattened(value if isinstance(value, list | tuple) else [value])
    try:
        kind, detail = verdict(loads(outcome.detail), [None if one is None else end_of(one) for one in handles])
    except WouldDeadlock as error:
        return replace(failed(work, error, outcome.runtime, 0.0), kind="failed")
    cause = None if kind == "succeeded" else RuntimeError(loads(detail)["message"])
    return replace(outcome, kind=kind, detail=detail, value=loads(detail), error=cause)
