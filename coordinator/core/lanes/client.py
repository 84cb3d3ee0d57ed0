"""The client of the lanes in Redis: it submits jobs, reads them, waits for them, cancels and moves them.

The state of lanes and jobs is in Redis only; this module keeps no copy of it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Unpack, cast

from kombu.utils.json import loads

from coordinator.core.author import Acting, act_of
from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.grabs.reader import end_of_process
from coordinator.core.jobs import record, validation
from coordinator.core.jobs.after import causes_within, in_order
from coordinator.core.jobs.instances import names_in, parse_instance
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.request import JobRequest
from coordinator.core.jobs.spec import Spec
from coordinator.core.jobs.states import Answer, End, State
from coordinator.core.jobs.submission import GrabOutcome, Submission
from coordinator.core.jobs.uses import uses_in
from coordinator.core.lanes import view as lane
from coordinator.core.lanes.view import Lane, why_closed
from coordinator.core.locks.leases import holders, would_deadlock
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.store.client import Store
from coordinator.core.store.step import Call, Reply, many
from coordinator.core.store.steps import (
    job_await,
    job_cancel,
    job_flush,
    job_move,
    job_progress,
    job_retry,
    job_submit,
    lane_pause,
    lane_release,
    lane_resume,
)
from coordinator.errors import (
    InvalidJob,
    LaneFull,
    Locked,
    StoreRefused,
    StoreUnavailable,
    UnknownJob,
    UnknownQuota,
    WaitTimeout,
)

logger = logging.getLogger(__name__)

_CHUNK = 200  # jobs that `submit_many` submits in one round trip
_RESULT_GRACE = 2.0  # seconds for which `wait` leaves time for a result to reach the backend
ENDS = ("back", "front")


class LaneClient:
    """The calls on jobs, lanes and nodes behind the methods of `Coordinator`, which explain them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._warned: set[str] = set()  # names of tasks that a warning was logged about

    def submit(self, request: JobRequest) -> Submission:
        """Submit a job. Raises StoreUnavailable if the job may have been written or not: repeat the call with the
        `job_id` of that error.
        """
        return self._answer(request, lambda: job_submit(self.store, *request.step_args()))

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        """Submit jobs, 200 in one round trip. The `job_ids` of an error are those of all the jobs: it is safe to repeat
        the call with them.
        """
        waiting = list(requests)
        order = _causes_first(waiting)
        try:
            chunks = (order[start : start + _CHUNK] for start in range(0, len(order), _CHUNK))
            answers = [answer for chunk in chunks for answer in self._submit_chunk([waiting[place] for place in chunk])]
            return [answer for _, answer in sorted(zip(order, answers, strict=True))]
        except (LaneFull, UnknownJob, UnknownQuota, StoreUnavailable, StoreRefused) as error:
            error.job_ids = tuple(request.id for request in waiting)
            raise

    def _submit_chunk(self, chunk: list[JobRequest]) -> list[Submission]:
        replies = many(self.store, [job_submit.of(*request.step_args()) for request in chunk])
        asks = [partial(self.store.checked, reply, request.id) for request, reply in zip(chunk, replies, strict=True)]
        return [self._answer(request, ask) for request, ask in zip(chunk, asks, strict=True)]

    def _answer(self, request: JobRequest, ask: Callable[[], Reply]) -> Submission:
        try:
            reply = ask()
        except StoreRefused as error:
            # A Redis without free memory refuses the step before it runs. Look here whether the job was written before.
            if not error.full or not any(record.fields(self.store, request.id, "state", "alias")):
                raise
            return Submission(request.id, "duplicate", -1)
        return self.answer(request, reply)

    def answer(self, request: JobRequest, reply: Reply) -> Submission:
        """Return the Submission for the reply of `job_submit` to a request. Raises InvalidJob and LaneFull."""
        self.check_quotas(reply)
        if reply[0] == b"other":
            raise _other_calls(request, reply)
        submission = _submitted(request, reply)
        if submission.outcome == "queued" and submission.position == 0:  # its lane is paused, or no node can run it
            with suppress(StoreUnavailable, StoreRefused):
                self._warn(request)
        return submission

    def check_quotas(self, reply: Reply) -> None:
        """Raise UnknownQuota, or InvalidJob, for the reply to a submit or a lock that was refused for a quota."""
        if reply[0] in (b"undeclared", b"too_many"):
            QuotaClient(self.store).check(reply[0].decode(), reply[2].decode(), reply[1])

    def _warn(self, request: JobRequest) -> None:
        """Log a warning, once for each task, if no living node can run the task of a request."""
        fields = dict(zip(request.fields[::2], request.fields[1::2], strict=True))
        kind, task = str(fields["class"]), str(fields["task"])
        if task in self._warned:
            return
        fitting = self.store.read("SMEMBERS", self.store.key("fits", kind))
        having = [("SISMEMBER", self.store.key("tasks", node.decode()), task) for node in fitting]
        if not having or not any(self.store.read_many(having)):
            self._warned.add(task)
            app, queue, *labels = kind.split("\n")
            where = f"app {app!r}, queue {queue!r}" if app else f"queue {queue!r}"
            where += f", labels {', '.join(labels)}" if labels else ""
            logger.warning("no living node can run the task %r (%s): its jobs wait for one", task, where)

    def job(self, job_id: str) -> Job:
        """Read the record of a job. For the id of a coalesced submit or a skipped call, read the job that it refers to.
        Raises UnknownJob.
        """
        fields = record.read(self.store, job_id)
        if other := fields.get(b"alias") or fields.get(b"skipped"):
            job_id = other.decode()
            fields = record.read(self.store, job_id)
        return record.parse(job_id, fields, record.ties_of(self.store, {job_id: fields}).get(job_id, record.Ties()))

    def spec(self, job_id: str) -> Spec:
        """Read the part of a job's record that only runners use: arguments, links and headers of the task. Raises
        UnknownJob.
        """
        spec: Spec = loads(record.read(self.store, job_id).get(b"spec", b"{}"))
        return spec

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait until a job is over or held, for at most `timeout` seconds (None: without end), and return it. Raises
        WaitTimeout (the job goes on); UnknownJob; StoreUnavailable if Redis is unreachable when the time is over; and
        WouldDeadlock if the job waits for the calling job, or for a lock of the calling code.

        Subscribes to the message about the job's end, and also reads the record every few seconds, in case the message
        is lost (`Connections.patience`). If the app stores results, returns once the result backend has that of the
        job, but at most two seconds after the job's end. `job_id` may also be the id of a process that won an instance.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        return self.store.insist(lambda: self._wait(job_id, deadline), deadline, f"the wait for job {job_id}")

    def _wait(self, job_id: str, deadline: float) -> Job:
        job = self.job(job_id)
        if job.waited_for:
            self._until_result_sent(job, deadline)
            return job
        if job_id.startswith(validation.GRABS):
            return end_of_process(self.store, job, deadline)
        done = self.store.key("done", job.id)
        with self.awaited(job.id) as check_deadlock, self.store.listening(done) as listen:
            while not (job := self.job(job.id)).waited_for:
                if (left := deadline - time.monotonic()) <= 0:
                    raise WaitTimeout(job_id, job.state)
                check_deadlock()
                listen(left)
        self._until_result_sent(job, deadline)
        return job

    def _until_result_sent(self, job: Job, deadline: float) -> None:
        """Wait until result and link callbacks of an ended job were sent, but not longer than two seconds after the
        job's end, nor after `deadline` (of `time.monotonic()`).
        """
        until, pause, unsent = math.inf, 0.001, self.store.key("unsent", record.app_of(self.store, job))
        while time.monotonic() < until and self.store.read("ZSCORE", unsent, job.id) is not None:
            if until == math.inf:
                passed = self.store.now() / 1000 - (job.ended.timestamp() if job.ended else 0)
                until = min(deadline, time.monotonic() + _RESULT_GRACE - passed)
            self.store.pause(pause)
            pause = min(0.05, pause * 2)

    @contextmanager
    def awaited(self, job_id: str) -> Iterator[Callable[[], None]]:
        """Note in Redis, for the length of a `with` block, that the job and the locks of the calling code wait for the
        job `job_id`.

        The block gets a function that raises WouldDeadlock if the code waits for itself. It must call the function
        repeatedly, since another job may begin to wait later.
        """
        own_holders = [part for pair in holders() for part in pair]

        def check_deadlock() -> None:
            if own_holders and (ring := job_await(self.store, job_id, *own_holders)):
                raise would_deadlock(ring)

        try:
            yield check_deadlock
        finally:
            if own_holders:
                with suppress(StoreUnavailable, StoreRefused):
                    job_await(self.store, "", *own_holders)

    def cancel(self, job_id: str, **acting: Unpack[Acting]) -> State:
        return self._acted(job_cancel.of(job_id, act_of(**acting)))

    def revoke(self, job_id: str, **acting: Unpack[Acting]) -> str:
        """Cancel a job that has not begun, or waits for a retry; any other job goes on. Returns the state of the job.
        Raises UnknownJob.
        """
        return self._acted(job_cancel.of(job_id, act_of(**acting), unbegun=True))

    def retry(self, job_id: str, *, to: End = "back", **acting: Unpack[Acting]) -> State:
        return self._acted(job_retry.of(job_id, act_of(**acting), validation.one_of("to", to, ENDS)))

    def flush(self, job_id: str, **acting: Unpack[Acting]) -> State:
        return self._acted(job_flush.of(job_id, act_of(**acting)))

    def move(
        self, job_id: str, *, priority: int | None = None, to: End = "back", token: str | None = None,
        **acting: Unpack[Acting],
    ) -> State:  # fmt: skip
        number = None if priority is None else validation.priority(priority)
        end = validation.one_of("to", to, ENDS)
        state, moved = job_move(self.store, job_id, number, end, act_of(**acting), token or "")
        if not state:
            raise UnknownJob(job_id)
        if not moved:
            raise InvalidJob(f"job {job_id} is {state}: only a waiting, scheduled or blocked job can be moved")
        return cast(State, state)

    def _acted(self, call: Call[str]) -> State:
        if not (state := call.run(self.store)):
            raise UnknownJob(str(call.args[0]))
        return cast(State, state)

    def release(self, key: str, *, holder: str = "", **acting: Unpack[Acting]) -> str | None:
        return lane_release(self.store, validation.check_key(key), act_of(**acting), holder) or None

    def pause(self, key: str, *, until: datetime | float | str | None = None, **acting: Unpack[Acting]) -> bool:
        ends = validation.until(until)
        return lane_pause(self.store, validation.check_key(key), ends, act_of(**acting))

    def resume(self, key: str, **acting: Unpack[Acting]) -> bool:
        return lane_resume(self.store, validation.check_key(key), act_of(**acting))

    def drain(self, node: str, on: bool, **acting: Unpack[Acting]) -> bool:
        return Nodes(self.store).drain(validation.name("node", node), on, act_of(**acting))

    def counts(self) -> dict[str, int]:
        return record.counts(self.store)

    def lane(self, key: str, most: int = 100) -> Lane:
        return lane.lanes_at(self.store, [validation.check_key(key)], most)[0]

    def locked(self, key: str) -> Locked:
        """Return the exception for a lock whose lane was not free. It names the holder of the lane, or the reason why
        the lane is closed.
        """
        lane = self.lane(key, 1)
        return Locked(key, lane.holder, why_closed(lane) or "held by another job")

    def nodes(self) -> list[Node]:
        return Nodes(self.store).living()

    def tasks_of(self, app: str) -> set[str] | None:
        """Return the names of the tasks that the living nodes of an app have; None if no node of the app is alive."""
        nodes = [node for node in Nodes(self.store).living() if node.app == app]
        return {task for node in nodes for task in node.tasks} if nodes else None

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        """Store the progress of a running job. Stores nothing if `token` is no longer the current token of the job."""
        job_progress(self.store, job_id, token, f"{done}/{total}")

    def quotas_of(self, job_id: str) -> list[str]:
        """The quotas that a job uses."""
        return list(uses_in(record.fields(self.store, job_id, "uses")[0]))

    def holds(self, job_id: str, token: str) -> bool:
        """True while `token` is the current token of the job. Raises StoreUnavailable if Redis does not answer: False
        always means that the job was lost.
        """
        return record.owned(self.store, job_id, token)


def _causes_first(requests: list[JobRequest]) -> Sequence[int]:
    """The order in which to submit jobs that wait for each other. Redis keeps the record of a cause for a while, even
    if it ends at once, so that the jobs that come behind find it.
    """
    after = [(request.id, request.after) for request in requests]
    if not any(text for _, text in after):
        return range(len(requests))
    order, causes = in_order(after), causes_within(after)
    for request in requests:
        if request.id in causes and "blocks" not in request.fields:
            request.fields = (*request.fields, "seldom", 1, "blocks", 1)
    return order


def _other_calls(request: JobRequest, reply: Reply) -> InvalidJob:
    """The error for a call that does not go with those that the lane collects."""
    _, _, other, about = reply
    task, how, keys, kind = about.decode().split("\0")
    fields = dict(zip(request.fields[::2], request.fields[1::2], strict=True))
    mine = f"{fields['task']!r} with how={request.when_busy.split(' ')[1]!r}"
    place = "" if keys == "\n".join(request.keys) else f" in the lanes {keys.splitlines()}"
    if not place and kind != str(fields["class"]):
        app, queue, *labels = kind.split("\n")
        place = f" for {', '.join([f'app {app!r}', f'queue {queue!r}', *labels])}"
    return InvalidJob(
        f"lane {request.keys[0]!r} collects calls of {task!r} with how={how!r}{place} in job {other.decode()}, and "
        f"this is one of {mine}: give it another key, or flush that job and call again once it runs"
    )


def _submitted(request: JobRequest, reply: Reply) -> Submission:
    outcome, position, about, _fence, *grab = reply
    if outcome == b"unknown":
        raise UnknownJob(about.decode())
    if outcome == b"full":
        raise LaneFull(about.decode(), position, request.id)
    if not grab:
        other = about.decode() if outcome in (b"skipped", b"coalesced") else ""
        other = "" if other == request.id else other
        return Submission(
            request.id, outcome.decode(), position, of=other, _key=request.keys[0] if request.keys else ""
        )
    instance, winner = grab
    return grab_submission(request, outcome.decode(), position, about.decode(), instance, winner.decode())


def grab_submission(
    request: JobRequest, outcome: Answer, position: int, about: str, instance: Sequence[bytes], winner: str
) -> Submission:
    """Return the Submission for a submit with a grab. `outcome`, `position`, `about` (the id of a job), `instance` (the
    record of the instance) and `winner` (the id of its winner): from the reply of the step `job_submit`.
    """
    grab, won = parse_instance(*names_in(request.keys[0]), instance), winner == request.id
    state = "incomplete" if not won and grab.state == "running" else grab.state
    job_id = about if outcome == "lost" else request.id
    return Submission(job_id, outcome, position, GrabOutcome(won, state, grab.winner, grab.value))
