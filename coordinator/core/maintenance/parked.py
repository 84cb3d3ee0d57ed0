"""The maintenance duty for parked jobs: when all sub-results of a job have ended, it ends the attempt that parked.

The duty checks a job when it has parked, when a worker reports the end of a sub-task, and otherwise every ten seconds.
A job stays parked while any of its sub-tasks runs, even if another has failed, so that two attempts never overlap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Required, TypedDict

from celery import Celery, states
from kombu.utils.json import loads

from coordinator.core.author import Author
from coordinator.core.jobs import chain
from coordinator.core.jobs.backoff import delay_of
from coordinator.core.jobs.record import Job, fields_of_many, keep_on, read_many, standing
from coordinator.core.jobs.spec import ErrorRecord, Handles
from coordinator.core.lanes.client import LaneClient
from coordinator.core.runner.results import is_ignored
from coordinator.core.runner.verdict import End, error_with_parts, verdict
from coordinator.core.store.steps import children_lost, children_over, job_unpark, parked_take
from coordinator.core.store.times import milliseconds
from coordinator.errors import CoordinatorError, UnknownJob

logger = logging.getLogger(__name__)

_PAUSE = 10.0  # seconds to the next check of a job, unless a worker reports the end of a sub-task
_TOGETHER = 500  # sub-results that one request to Redis or to the result backend reads
_KNOWN = 100  # parked attempts of which this process remembers which sub-results have ended
_KEEP = 3600.0  # seconds for which records of ended sub-results are kept, counted again whenever another one ends
_KEEP_AGAIN = 600.0  # seconds after which that time is extended even if no other one has ended
# Why `parked_take` returns a job (functions/steps/parked.lua): a check is due, the time limit of the parked attempt is
# over, or the attempt itself is over and its sub-results are to be stopped.
_LOOK, _LATE, _OVER = range(3)


class Meta(TypedDict, total=False):
    """The state of a task as the result backend returns it."""

    status: Required[str]
    result: object


class Parked:
    """Checks the parked jobs of one app, and ends their attempts."""

    def __init__(self, lanes: LaneClient, app: Celery) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.app = app
        self._ended: dict[str, set[str]] = {}  # by token of a parked attempt: the ids of sub-results that have ended
        self._kept: dict[str, tuple[int, float]] = {}  # by token: the number of records kept, and until when

    def step(self, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Check the parked jobs that are due, and call `heartbeat` after each portion of work. A check that fails is
        logged, and repeated later.
        """
        for raw, last, handles, what in parked_take(self.store, self.app.main, milliseconds(_PAUSE)):
            job_id = raw.decode()
            heartbeat()
            try:
                self._look(job_id, last.decode(), loads(handles), int(what), heartbeat)
            except CoordinatorError:
                raise
            except Exception:
                logger.exception("cannot check the sub-results of job %s; trying again in %g s", job_id, _PAUSE)

    def _look(self, job_id: str, last: str, handles: Handles, reason: int, heartbeat: Callable[[], None]) -> None:
        """Check the sub-results of one parked job, and end the attempt if they have ended or the time limit is over.

        `last`: the token of the parked attempt. `reason`: one of _LOOK, _LATE and _OVER.
        """
        ids = [part for part in handles["ids"] if part is not None]
        open_ = self._open(last, ids, reason == _LOOK, heartbeat)
        if open_ and reason == _LOOK:
            self._keep_on(last)
            if self._lost(job_id, open_):
                self._end_lost(job_id, last, ids, heartbeat)
            return
        self._ended.pop(last, None)
        if open_:
            self._stop(open_, job_id)
        if reason == _OVER:
            return
        if open_:
            message = f"{len(open_)} of {len(ids)} sub-results had not ended within its time_limit; they were revoked"
            error: ErrorRecord = {"type": "TimedOut", "module": "coordinator.timed_out", "message": message}
            self._unpark(job_id, last, "failed", self._with_parts(error, ids, heartbeat))
            return
        ends = self._ends(ids, heartbeat)
        in_order = [None if part is None else ends[part] for part in handles["ids"]]
        self._unpark(job_id, last, *verdict(handles, in_order, self.store.settings.max_payload))

    def _open(self, last: str, ids: Sequence[str], first: bool, heartbeat: Callable[[], None]) -> list[str]:
        """Return the sub-results among `ids` that have not ended. The others are remembered under the token `last`, so
        that the next check does not read them again. `first`: stop after the first portion with one that has not ended.
        """
        ended = self._ended.setdefault(last, set())
        while len(self._ended) > _KNOWN:  # another node may have ended some of these attempts
            del self._ended[next(iter(self._ended))]
        unknown, still_open = [part for part in ids if part not in ended], []
        for start in range(0, len(unknown), _TOGETHER):
            portion = unknown[start : start + _TOGETHER]
            ended.update(self._ends(portion, heartbeat))
            still_open += [part for part in portion if part not in ended]
            if still_open and first:
                break
        return still_open

    def _keep_on(self, last: str) -> None:
        """Extend the expiry of the records of ended sub-results, while the attempt `last` waits for the others."""
        ended, (count, again) = self._ended[last], self._kept.get(last, (0, 0.0))
        if ended and (len(ended) > count or time.monotonic() >= again):
            keep_on(self.store, ended, _KEEP)
            self._kept = {token: kept for token, kept in self._kept.items() if token in self._ended}
            self._kept[last] = (len(ended), time.monotonic() + _KEEP_AGAIN)

    def _end_lost(self, job_id: str, last: str, ids: Sequence[str], heartbeat: Callable[[], None]) -> None:
        """End the attempt `last` as lost if all of its sub-results that have not ended were lost with their workers."""
        open_ = self._open(last, ids, False, heartbeat)
        lost = self._lost(job_id, open_)
        if lost and len(lost) == len(open_):
            self._ended.pop(last, None)
            self._mark_over(job_id, lost)
            message = f"{len(lost)} of {len(ids)} sub-results were lost with their nodes, {lost[0]} for one"
            error: ErrorRecord = {"type": "SubResultLost", "message": message}
            self._unpark(job_id, last, "lost", self._with_parts(error, ids, heartbeat))

    def _with_parts(self, error: ErrorRecord, ids: Sequence[str], heartbeat: Callable[[], None]) -> str:
        ends = self._ends(ids, heartbeat)
        return error_with_parts(error, ids, [ends.get(part) for part in ids], self.store.settings.max_payload)

    def _mark_over(self, job_id: str, ids: Sequence[str]) -> None:
        """Note in Redis that the attempt ends without these sub-tasks, so that none of them runs if its message is
        redelivered.
        """
        for start in range(0, len(ids), _TOGETHER):
            children_over(self.store, job_id, *ids[start : start + _TOGETHER])

    def _lost(self, job_id: str, ids: Sequence[str]) -> list[str]:
        """Return the sub-tasks among `ids` that were lost: the worker that began them is dead, and the result backend,
        read after that, has neither an end nor a retry of them. With `acks_late`, the broker may redeliver the message
        of such a task after an hour; the job does not wait for that.
        """
        lost: list[str] = []
        for start in range(0, len(ids), _TOGETHER):
            orphans = children_lost(self.store, job_id, *ids[start : start + _TOGETHER])
            state_of = {part: meta["status"] for part, meta in self._metas(orphans, lambda: None)}
            over = (*states.READY_STATES, states.RETRY)
            lost += [part for part in orphans if state_of.get(part) not in over]
        return lost

    def _ends(self, ids: Sequence[str], heartbeat: Callable[[], None]) -> dict[str, End]:
        """Read how these sub-results ended, by id; without those that have not ended."""
        ends: dict[str, End] = {}
        for start in range(0, len(ids), _TOGETHER):
            portion = ids[start : start + _TOGETHER]
            jobs = self._jobs(portion)
            ends |= {part: _end_of_job(job) for part, job in jobs.items() if job.over}
            for part, meta in self._metas([part for part in portion if part not in jobs], heartbeat):
                if meta["status"] in states.READY_STATES:
                    ends[part] = End(meta["status"] == states.SUCCESS, meta["result"])
            heartbeat()
        return ends

    def _jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        """Read those of these sub-results that are jobs, by id. An alias gives the job for which it stands."""
        records = zip(ids, fields_of_many(self.store, ids, "alias", "state"), strict=True)
        resolved = {part: alias or part for part, (alias, state) in records if alias or state}
        jobs = {job.id: job for job in read_many(self.store, list(set(resolved.values())))}
        return {part: jobs[job_id] for part, job_id in resolved.items() if job_id in jobs}

    def _metas(self, ids: Sequence[str], heartbeat: Callable[[], None]) -> Iterator[tuple[str, Meta]]:
        """Read the states of tasks from the result backend, in one request if the backend can do that."""
        if hasattr(self.app.backend, "mget") and ids:
            yield from self.app.backend.get_many(ids, interval=0, max_iterations=1)
            return
        for task_id in ids:
            yield task_id, self.app.backend.get_task_meta(task_id)
            heartbeat()

    def _stop(self, ids: list[str], job_id: str) -> None:
        """Cancel those of these sub-results that are jobs, and revoke the others, which are tasks."""
        tasks = []
        for part in ids:
            try:
                self.lanes.cancel(
                    part, why=f"sub-result of job {job_id}, which is over", by=Author("coordinator", "system")
                )
            except UnknownJob:
                tasks.append(part)
        if tasks:
            self._mark_over(job_id, tasks)
            self.app.control.revoke(tasks, terminate=True)
        logger.warning("job %s: stopped %d of its sub-results", job_id, len(ids))

    def _unpark(self, job_id: str, last: str, outcome: str, detail: str) -> None:
        """End the parked attempt `last` with this outcome; `detail`: the result or the error, in JSON."""
        job = standing(self.store, job_id)
        delay = delay_of(job.spec, job.tries, self.store.settings.retry_delay)
        following: tuple[str, str, int | str] = ("", "", "")
        if outcome == "succeeded" and (step := job.following) is not None:
            outcome, detail, following = chain.end_of(
                job.spec if job.back is None else job.spec["rollback"], step, detail
            )
        elif outcome == "succeeded" and "link" not in job.spec and is_ignored(self.app, job.task, job.spec):
            detail = "null"
        state = job_unpark(self.store, job_id, last, outcome, detail, milliseconds(delay), None, *following)
        logger.info("job %s: parked attempt ended: %s; the job is now %s", job_id, outcome, state or "no longer parked")


def _end_of_job(job: Job) -> End:
    well = job.state == "succeeded"
    return End(well, job.result if well else job.error)
