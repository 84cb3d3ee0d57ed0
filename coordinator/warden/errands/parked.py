"""The duty of the errands that looks at parked jobs: when all sub-results of one have ended, it ends the attempt.

The errands look once after a job parks, at once when a worker reports the end of a sub-task, and otherwise every ten
seconds. A job stays parked while any of its sub-tasks runs, even if another failed, so that two attempts never overlap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Required, TypedDict

from celery import Celery, states
from kombu.utils.json import loads

from coordinator.author import Author
from coordinator.errors import CoordinatorError, UnknownJob
from coordinator.jobs import chain
from coordinator.jobs.backoff import delay_of
from coordinator.jobs.record import Job, fields_of_many, keep_on, read_many, standing
from coordinator.jobs.spec import ErrorRecord, Handles
from coordinator.lanes.client import LaneClient
from coordinator.runner.results import is_ignored
from coordinator.runner.verdict import End, error_with_parts, verdict
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_PAUSE = 10.0  # seconds to the next look where no worker reports an end
_TOGETHER = 500  # sub-results in one request
_KNOWN = 100  # parked attempts for which we remember the sub-results that ended
_KEEP = 3600.0  # seconds by which the records of ended sub-results are kept longer, whenever another one ends
_KEEP_AGAIN = 600.0
_LOOK, _LATE, _OVER = range(3)  # functions/steps/parked.lua


class Meta(TypedDict, total=False):
    """A task's state in the result backend."""

    status: Required[str]
    result: object


class Parked:
    def __init__(self, lanes: LaneClient, app: Celery) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.app = app
        self._ended: dict[str, set[str]] = {}  # token of a parked attempt: its sub-results that have ended
        self._kept: dict[str, tuple[int, float]] = {}  # the same: how many of them are kept, and until when

    def step(self, get_on: Callable[[], None] = lambda: None) -> None:
        """Look at the jobs that are due; call `get_on` after each portion of work. A look that fails is logged and
        repeated later.
        """
        for raw, last, handles, what in self.store.step("parked_take", self.app.main, milliseconds(_PAUSE)):
            job_id = raw.decode()
            get_on()
            try:
                self._look(job_id, last.decode(), loads(handles), int(what), get_on)
            except CoordinatorError:
                raise
            except Exception:
                logger.exception("cannot look at the sub-results of job %s; again in %g s", job_id, _PAUSE)

    def _look(self, job_id: str, last: str, handles: Handles, what: int, get_on: Callable[[], None]) -> None:
        ids = [part for part in handles["ids"] if part is not None]
        open_ = self._open(last, ids, what == _LOOK, get_on)
        if open_ and what == _LOOK:
            self._keep_on(last)
            if self._lost(job_id, open_):
                self._end_lost(job_id, last, ids, get_on)
            return
        self._ended.pop(last, None)
        if open_:
            self._stop(open_, job_id)
        if what == _OVER:
            return
        if open_:
            message = f"{len(open_)} of {len(ids)} sub-results had not ended within its time_limit; they were revoked"
            error: ErrorRecord = {"type": "TimedOut", "module": "coordinator.timed_out", "message": message}
            self._unpark(job_id, last, "failed", self._with_parts(error, ids, get_on))
            return
        ends = self._ends(ids, get_on)
        in_order = [None if part is None else ends[part] for part in handles["ids"]]
        self._unpark(job_id, last, *verdict(handles, in_order, self.store.settings.max_payload))

    def _open(self, last: str, ids: Sequence[str], first: bool, get_on: Callable[[], None]) -> list[str]:
        """The sub-results that have not ended. `first`: stop after the first portion with an open one. Ended ones are
        remembered and not asked for again, so that a look costs no more than what is new.
        """
        ended = self._ended.setdefault(last, set())
        while len(self._ended) > _KNOWN:  # another node may have ended some of these attempts
            del self._ended[next(iter(self._ended))]
        unknown, still_open = [part for part in ids if part not in ended], []
        for start in range(0, len(unknown), _TOGETHER):
            portion = unknown[start : start + _TOGETHER]
            ended.update(self._ends(portion, get_on))
            still_open += [part for part in portion if part not in ended]
            if still_open and first:
                break
        return still_open

    def _keep_on(self, last: str) -> None:
        """Keep the records of ended sub-results while their parent waits for the others."""
        ended, (count, again) = self._ended[last], self._kept.get(last, (0, 0.0))
        if ended and (len(ended) > count or time.monotonic() >= again):
            keep_on(self.store, ended, _KEEP)
            self._kept = {token: kept for token, kept in self._kept.items() if token in self._ended}
            self._kept[last] = (len(ended), time.monotonic() + _KEEP_AGAIN)

    def _end_lost(self, job_id: str, last: str, ids: Sequence[str], get_on: Callable[[], None]) -> None:
        """End an attempt as a loss if a sub-task of it was lost, and nothing else of it runs."""
        open_ = self._open(last, ids, False, get_on)
        lost = self._lost(job_id, open_)
        if lost and len(lost) == len(open_):
            self._ended.pop(last, None)
            self._mark_over(job_id, lost)
            message = f"{len(lost)} of {len(ids)} sub-results were lost with their nodes, {lost[0]} for one"
            error: ErrorRecord = {"type": "SubResultLost", "message": message}
            self._unpark(job_id, last, "lost", self._with_parts(error, ids, get_on))

    def _with_parts(self, error: ErrorRecord, ids: Sequence[str], get_on: Callable[[], None]) -> str:
        ends = self._ends(ids, get_on)
        return error_with_parts(error, ids, [ends.get(part) for part in ids], self.store.settings.max_payload)

    def _mark_over(self, job_id: str, ids: Sequence[str]) -> None:
        """Note that the attempt ends without these tasks: if a message of one is delivered again, it does not run."""
        for start in range(0, len(ids), _TOGETHER):
            self.store.step("children_over", job_id, *ids[start : start + _TOGETHER])

    def _lost(self, job_id: str, ids: Sequence[str]) -> list[str]:
        """The sub-tasks that a worker began and that died with it: the backend, asked after the death, has neither an
        end nor a retry. With late acknowledgement the message may come again after an hour; we do not wait for that.
        """
        lost: list[str] = []
        for start in range(0, len(ids), _TOGETHER):
            raw = self.store.step("children_lost", job_id, *ids[start : start + _TOGETHER])
            orphans = [part.decode() for part in raw]
            state_of = {part: meta["status"] for part, meta in self._metas(orphans, lambda: None)}
            over = (*states.READY_STATES, states.RETRY)
            lost += [part for part in orphans if state_of.get(part) not in over]
        return lost

    def _ends(self, ids: Sequence[str], get_on: Callable[[], None]) -> dict[str, End]:
        """How each of these sub-results ended; those that have not are left out."""
        ends: dict[str, End] = {}
        for start in range(0, len(ids), _TOGETHER):
            portion = ids[start : start + _TOGETHER]
            jobs = self._jobs(portion)
            ends |= {part: _end_of_job(job) for part, job in jobs.items() if job.over}
            for part, meta in self._metas([part for part in portion if part not in jobs], get_on):
                if meta["status"] in states.READY_STATES:
                    ends[part] = End(meta["status"] == states.SUCCESS, meta["result"])
            get_on()
        return ends

    def _jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        """The ids among these that are jobs, aliases resolved."""
        records = zip(ids, fields_of_many(self.store, ids, "alias", "state"), strict=True)
        resolved = {part: alias or part for part, (alias, state) in records if alias or state}
        jobs = {job.id: job for job in read_many(self.store, list(set(resolved.values())))}
        return {part: jobs[job_id] for part, job_id in resolved.items() if job_id in jobs}

    def _metas(self, ids: Sequence[str], get_on: Callable[[], None]) -> Iterator[tuple[str, Meta]]:
        """Ask the backend for the state of tasks, for all at once if it can."""
        if hasattr(self.app.backend, "mget") and ids:
            yield from self.app.backend.get_many(ids, interval=0, max_iterations=1)
            return
        for task_id in ids:
            yield task_id, self.app.backend.get_task_meta(task_id)
            get_on()

    def _stop(self, ids: list[str], job_id: str) -> None:
        """Cancel the jobs among these sub-results, and revoke the tasks."""
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
        """End the parked attempt with this outcome."""
        job = standing(self.store, job_id)
        delay = delay_of(job.spec, job.tries, self.store.settings.retry_delay)
        following: tuple[str, str, int | str] = ("", "", "")
        if outcome == "succeeded" and (step := job.following) is not None:
            outcome, detail, following = chain.end_of(
                job.spec if job.back is None else job.spec["rollback"], step, detail
            )
        elif outcome == "succeeded" and "link" not in job.spec and is_ignored(self.app, job.task, job.spec):
            detail = "null"
        args = (job_id, last, outcome, detail, milliseconds(delay), "", *following)
        state = self.store.step("job_unpark", *args)
        logger.info("job %s: all sub-results ended; %s, now %s", job_id, outcome, state.decode() or "no longer parked")


def _end_of_job(job: Job) -> End:
    well = job.state == "succeeded"
    return End(well, job.result if well else job.error)
