"""The errands look at parked jobs: once all sub-results of one have ended, it goes on as if its attempt ended now.

They look once after a job parked, at once when a worker tells the end of a sub-task, and else slowly. A job stays
parked as long as one of its sub-tasks runs, also where another failed: two attempts never overlap.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Required, TypedDict, cast

from celery import Celery, states
from kombu.utils.json import dumps, loads

from coordinator.errors import CoordinatorError, UnknownJob
from coordinator.execution.results import is_ignored
from coordinator.jobs import chain
from coordinator.jobs.backoff import delay_of
from coordinator.jobs.faults import log_double_fault
from coordinator.jobs.record import Job, fields_of_many, keep_on, read_many, standing
from coordinator.jobs.spec import Cause, Handles, Part
from coordinator.lanes.lanes import Lanes
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_PAUSE = 10.0  # seconds to the next look when nobody tells
_TOGETHER = 500  # sub-results that one request asks for
_KNOWN = 100  # parked attempts of which the ends that were seen are known
_KEEP = 3600.0  # seconds for which the records of sub-results are kept on, each time that one more has ended
_KEEP_AGAIN = 600.0
_LOOK, _LATE, _OVER = range(3)  # functions/steps/parked.lua


class End(NamedTuple):
    """How a sub-result ended: `found` is its result where it ended `well`, else its error."""

    well: bool
    found: object


class Meta(TypedDict, total=False):
    """A task's state in the result backend."""

    status: Required[str]
    result: object


class Parked:
    def __init__(self, lanes: Lanes, app: Celery) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.app = app
        self._ended: dict[str, set[str]] = {}  # by the token of a parked attempt: sub-results that were seen to end
        self._kept: dict[str, tuple[int, float]] = {}  # how many of them were kept on, and until when that is enough

    def step(self, get_on: Callable[[], None] = lambda: None) -> None:
        """Look at the jobs that are due, and call `get_on` after each portion of work. A look that fails is logged, and
        made again later.
        """
        for raw in self.store.step("parked_take", self.app.main, milliseconds(_PAUSE)):
            job_id, last, handles, what = raw[0].decode(), raw[1].decode(), loads(raw[2]), int(raw[3])
            get_on()
            try:
                self._look(job_id, last, handles, what, get_on)
            except CoordinatorError:
                raise
            except Exception:
                logger.exception("cannot look at the sub-results of job %s; again in %g s", job_id, _PAUSE)

    def _look(self, job_id: str, last: str, handles: Handles, what: int, get_on: Callable[[], None]) -> None:
        ids = [one for one in handles["ids"] if one is not None]
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
            error: Cause = {"type": "TimedOut", "module": "coordinator.errors", "message": message}
            self._unpark(job_id, last, "failed", self._with_parts(error, ids, get_on))
            return
        ends = self._ends(ids, get_on)
        found = [None if one is None else ends[one] for one in handles["ids"]]
        self._unpark(job_id, last, *verdict(handles, found, self.store.settings.max_payload))

    def _open(self, last: str, ids: Sequence[str], first: bool, get_on: Callable[[], None]) -> list[str]:
        """Those that have not ended. `first`: one portion with such a one is enough. One that ended is not asked for
        again: a look at a job with many sub-results costs what is new.
        """
        ended = self._ended.setdefault(last, set())
        while len(self._ended) > _KNOWN:  # another node may have ended some of them
            del self._ended[next(iter(self._ended))]
        unknown, found = [one for one in ids if one not in ended], []
        for start in range(0, len(unknown), _TOGETHER):
            portion = unknown[start : start + _TOGETHER]
            ended.update(self._ends(portion, get_on))
            found += [one for one in portion if one not in ended]
            if found and first:
                break
        return found

    def _keep_on(self, last: str) -> None:
        """A job that ended is forgotten after a while: not while its parent waits for the slowest of them."""
        ended, (count, again) = self._ended[last], self._kept.get(last, (0, 0.0))
        if ended and (len(ended) > count or time.monotonic() >= again):
            keep_on(self.store, ended, _KEEP)
            self._kept = {token: kept for token, kept in self._kept.items() if token in self._ended}
            self._kept[last] = (len(ended), time.monotonic() + _KEEP_AGAIN)

    def _end_lost(self, job_id: str, last: str, ids: Sequence[str], get_on: Callable[[], None]) -> None:
        """End an attempt of which a sub-task was lost, once nothing else of it runs. It counts as a loss."""
        open_ = self._open(last, ids, False, get_on)
        lost = self._lost(job_id, open_)
        if lost and len(lost) == len(open_):
            self._ended.pop(last, None)
            message = f"{len(lost)} of {len(ids)} sub-results were lost with their nodes, {lost[0]} for one"
            error: Cause = {"type": "SubResultLost", "message": message}
            self._unpark(job_id, last, "lost", self._with_parts(error, ids, get_on))

    def _with_parts(self, error: Cause, ids: Sequence[str], get_on: Callable[[], None]) -> str:
        ends = self._ends(ids, get_on)
        return _told(error, ids, [ends.get(one) for one in ids], self.store.settings.max_payload)

    def _lost(self, job_id: str, ids: Sequence[str]) -> list[str]:
        """Those that a worker had begun, whose message it had acknowledged, and that died with it: the backend, asked
        after that, knows no end of it, and no other message for it.
        """
        lost: list[str] = []
        for start in range(0, len(ids), _TOGETHER):
            found = self.store.step("children_lost", job_id, *ids[start : start + _TOGETHER])
            metas = self._metas([one.decode() for one in found], lambda: None)
            state_of = {one: meta["status"] for one, meta in metas}
            over = (*states.READY_STATES, states.RETRY)
            lost += [one.decode() for one in found if state_of.get(one.decode()) not in over]
        return lost

    def _ends(self, ids: Sequence[str], get_on: Callable[[], None]) -> dict[str, End]:
        """How each of them that is over ended."""
        ends: dict[str, End] = {}
        for start in range(0, len(ids), _TOGETHER):
            portion = ids[start : start + _TOGETHER]
            jobs = self._jobs(portion)
            ends |= {one: _end_of_job(job) for one, job in jobs.items() if job.over}
            for one, meta in self._metas([one for one in portion if one not in jobs], get_on):
                if meta["status"] in states.READY_STATES:
                    ends[one] = End(meta["status"] == states.SUCCESS, meta["result"])
            get_on()
        return ends

    def _jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        """Those that are jobs; one that melted into another is that one."""
        found = zip(ids, fields_of_many(self.store, ids, "alias", "state"), strict=True)
        meant = {one: alias or one for one, (alias, state) in found if alias or state}
        jobs = {job.id: job for job in read_many(self.store, list(set(meant.values())))}
        return {one: jobs[other] for one, other in meant.items() if other in jobs}

    def _metas(self, ids: Sequence[str], get_on: Callable[[], None]) -> Iterator[tuple[str, Meta]]:
        """Ask the backend for tasks: for all at once where it can, else one by one."""
        if hasattr(self.app.backend, "mget") and ids:
            yield from self.app.backend.get_many(ids, interval=0, max_iterations=1)
            return
        for one in ids:
            yield one, self.app.backend.get_task_meta(one)
            get_on()

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

    def _unpark(self, job_id: str, last: str, outcome: str, detail: str) -> None:
        job = standing(self.store, job_id)
        delay = delay_of(job.spec, job.tries, self.store.settings.retry_delay)
        following: tuple[str, str, int | str] = ("", "", "")
        if outcome == "succeeded" and (step := job.following) is not None:
            outcome, following = "step", chain.advance(step)
        elif outcome == "succeeded" and "link" not in job.spec and is_ignored(self.app, job.task, job.spec):
            detail = "null"
        args = (job_id, last, outcome, detail, milliseconds(delay), "", *following)
        state = self.store.step("job_unpark", *args)
        logger.info("job %s: all sub-results ended; %s, now %s", job_id, outcome, state.decode() or "no longer parked")
        if state and job.back is not None and outcome not in ("succeeded", "step"):
            log_double_fault(job_id, job.key, job.error, loads(detail))


def _end_of_job(job: Job) -> End:
    well = job.state == "succeeded"
    return End(well, job.result if well else job.error)


def verdict(handles: Handles, ends: Sequence[End | None], most: int) -> tuple[str, str]:
    """The outcome and the detail of an attempt whose sub-results ended, each (well?, result or error).

    most: bytes that their results may have together.
    """
    ids = handles["ids"]
    bad = [(one, end.found) for one, end in zip(ids, ends, strict=True) if end is not None and not end.well]
    if bad:
        message = f"{len(bad)} of {len(ids)} sub-results failed; {bad[0][0]}: {bad[0][1]}"
        return "raised", _told({"type": "SubResultFailed", "message": message}, ids, ends, most)
    values = [None if end is None else end.found for end in ends]
    try:
        text = str(dumps(values[0] if handles["one"] else values))
        if len(text) <= most:
            return "succeeded", text
        message = f"its sub-results have {len(text)} bytes; at most {most} (setting max_payload)"
    except (TypeError, ValueError) as error:
        message = f"the result of a sub-result is not JSON: {error}"
    return "failed", dumps({"type": "SubResultFailed", "message": message})


def _told(error: Cause, ids: Sequence[str | None], ends: Sequence[End | None], most: int) -> str:
    """The error as JSON, with how each sub-result ended; without their results where these are too long, or no JSON."""
    named = [(one, end) for one, end in zip(ids, ends, strict=True) if one is not None]
    for with_results in (True, False):
        parts = [_part(one, end, with_results) for one, end in named]
        try:
            text = str(dumps({**error, "parts": parts}))
        except (TypeError, ValueError):
            continue
        if len(text) <= most:
            return text
    return str(dumps(error))


def _part(one: str, end: End | None, with_results: bool) -> Part:
    if end is None:
        return {"id": one}
    if end.well:
        return {"id": one, "result": end.found} if with_results else {"id": one}
    if isinstance(end.found, Mapping):
        kept = {name: end.found[name] for name in ("type", "module", "message") if name in end.found}
        return {"id": one, "error": cast(Cause, kept)}
    kind = type(end.found) if isinstance(end.found, BaseException) else Exception
    return {"id": one, "error": {"type": kind.__name__, "module": kind.__module__, "message": str(end.found)[:4096]}}
