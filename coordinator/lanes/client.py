"""Puts jobs in line, looks at them, waits for them, cancels them.

Only Redis knows the state of a lane; a wake-up merely makes a node look.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Unpack, cast

from kombu.utils.json import loads

from coordinator.author import Acting, act_of
from coordinator.errors import InvalidJob, LaneFull, Locked, StoreRefused, StoreUnavailable, UnknownJob, WaitTimeout
from coordinator.fleet.nodes import Node, Nodes
from coordinator.grabs.reader import end_of_process
from coordinator.jobs import record, validation
from coordinator.jobs.instances import is_grab, names_in, parse_instance
from coordinator.jobs.record import Job
from coordinator.jobs.request import JobRequest
from coordinator.jobs.spec import Spec
from coordinator.jobs.states import Answer, End, LaneState, State
from coordinator.jobs.submission import GrabOutcome, Submission
from coordinator.lanes import view as lane
from coordinator.lanes.view import Lane, why_closed
from coordinator.locks.leases import holders, would_deadlock
from coordinator.store.client import Store

logger = logging.getLogger(__name__)

_CHUNK = 200
_RESULT_GRACE = 2.0  # seconds for which `wait` leaves time for a result to reach the backend
ENDS = ("back", "front")
MAX_LANE_LIMIT = 1000


class LaneClient:
    """The calls on jobs, lanes and nodes, of which `Coordinator` says what they mean."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._warned: set[str] = set()  # tasks

    def submit(self, request: JobRequest) -> Submission:
        """Put a job in line. Raises StoreUnavailable(job_id) when the outcome is unknown: ask again with that id."""
        return self._answer(request, lambda: self.store.step("job_submit", *request.step_args(), job_id=request.id))

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        """Put jobs in line, 200 in a round trip. An error names the ids of all: asking again with them is safe."""
        waiting = list(requests)
        try:
            chunks = (waiting[start : start + _CHUNK] for start in range(0, len(waiting), _CHUNK))
            return [submission for chunk in chunks for submission in self._submit_chunk(chunk)]
        except (LaneFull, StoreUnavailable, StoreRefused) as error:
            error.job_ids = tuple(request.id for request in waiting)
            raise

    def _submit_chunk(self, chunk: list[JobRequest]) -> list[Submission]:
        replies = self.store.step_many("job_submit", [request.step_args() for request in chunk])
        asks = [partial(self.store.checked, reply, request.id) for request, reply in zip(chunk, replies, strict=True)]
        return [self._answer(request, ask) for request, ask in zip(chunk, asks, strict=True)]

    def _answer(self, request: JobRequest, ask: Callable[[], Any]) -> Submission:
        try:
            submission = _submitted(request, ask())
        except StoreRefused as error:
            # A full Redis refuses the step without running it: a job that it already has is a duplicate all the same.
            if not error.full or not any(record.fields(self.store, request.id, "state", "alias")):
                raise
            return Submission(request.id, "duplicate", -1)
        if submission.outcome == "queued" and submission.position == 0:  # its lane is paused, or nobody can run it
            with suppress(StoreUnavailable, StoreRefused):
                self._warn(request)
        return submission

    def _warn(self, request: JobRequest) -> None:
        """Warn once for each task that no living node can run."""
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
        """Read a job. Raises UnknownJob. The id of a coalesced submit, or of a skipped call, shows the other job."""
        fields = record.read(self.store, job_id)
        if other := fields.get(b"alias") or fields.get(b"skipped"):
            job_id = other.decode()
            fields = record.read(self.store, job_id)
        return record.parse(job_id, fields)

    def spec(self, job_id: str) -> Spec:
        """Read the part of a record that only the runner uses: args, kwargs, links, headers."""
        spec: Spec = loads(record.read(self.store, job_id).get(b"spec", b"{}"))
        return spec

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait until a job is over, or held, and return it. Raises WaitTimeout (the job goes on), UnknownJob;
        StoreUnavailable where Redis is away when the time is over; WouldDeadlock where the job waits for the calling
        job, or for a lock of the caller.

        Listens for the notice of the job's end, and reads the record now and then, in case the notice is lost
        (`Connections.patience`). Where the app stores the job's result, the backend has it by then, unless that takes
        longer than two seconds after the job's end. `job_id` may also be the id of a process that won an instance.
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
        with self.awaited(job.id) as look, self.store.listening(self.store.key("done", job.id)) as listen:
            while not (job := self.job(job.id)).waited_for:
                if (left := deadline - time.monotonic()) <= 0:
                    raise WaitTimeout(job_id, job.state)
                look()
                listen(left)
        self._until_result_sent(job, deadline)
        return job

    def _until_result_sent(self, job: Job, deadline: float) -> None:
        """Wait until the job's result and links were sent, or two seconds have passed since its end."""
        until, pause, unsent = math.inf, 0.001, self.store.key("unsent", record.app_of(self.store, job))
        while time.monotonic() < until and self.store.read("ZSCORE", unsent, job.id) is not None:
            if until == math.inf:
                passed = self.store.now() / 1000 - (job.ended.timestamp() if job.ended else 0)
                until = min(deadline, time.monotonic() + _RESULT_GRACE - passed)
            self.store.pause(pause)
            pause = min(0.05, pause * 2)

    @contextmanager
    def awaited(self, job_id: str) -> Iterator[Callable[[], None]]:
        """Note in Redis that the caller's job and locks wait for this job.

        Gives a call that raises WouldDeadlock where they wait in a ring; repeat it, since a ring may close later.
        """
        others = [part for pair in holders() for part in pair]

        def look() -> None:
            if others and (ring := self.store.step("job_await", job_id, *others)):
                raise would_deadlock(ring.decode())

        try:
            yield look
        finally:
            if others:
                with suppress(StoreUnavailable, StoreRefused):
                    self.store.step("job_await", "", *others)

    def cancel(self, job_id: str, **acting: Unpack[Acting]) -> State:
        return self._acted("job_cancel", job_id, act_of(**acting))

    def revoke(self, job_id: str, **acting: Unpack[Acting]) -> str:
        """End a job that has not begun, or waits for its retry; return its state. Any other job goes on."""
        return self._acted("job_cancel", job_id, act_of(**acting), "1")

    def retry(self, job_id: str, *, to: End = "back", **acting: Unpack[Acting]) -> State:
        return self._acted("job_retry", job_id, act_of(**acting), validation.one_of("to", to, ENDS))

    def move(
        self, job_id: str, *, priority: int | None = None, to: End = "back", token: str | None = None,
        **acting: Unpack[Acting],
    ) -> State:  # fmt: skip
        number = "" if priority is None else validation.priority(priority)
        args = (job_id, number, validation.one_of("to", to, ENDS), act_of(**acting), token or "")
        state, moved = self.store.step("job_move", *args, job_id=job_id)
        if not state:
            raise UnknownJob(job_id)
        if not moved:
            raise InvalidJob(f"job {job_id} is {state.decode()}: only one that waits can be moved")
        return cast(State, state.decode())

    def set_limit(self, key: str, limit: int, **acting: Unpack[Acting]) -> int:
        if is_grab(lane := validation.check_key(key)):
            raise InvalidJob(f"lane {validation.shown_lane(lane)}: one at a time works on an instance of a grab")
        return int(self.store.step("lane_limit", lane, check_limit(limit), act_of(**acting)))

    def _acted(self, step: str, job_id: str, *args: str) -> State:
        state = self.store.step(step, job_id, *args, job_id=job_id)
        if not state:
            raise UnknownJob(job_id)
        return cast(State, state.decode())

    def release(self, key: str, *, holder: str = "", **acting: Unpack[Acting]) -> str | None:
        return self.store.step("lane_release", validation.check_key(key), act_of(**acting), holder).decode() or None

    def pause(self, key: str, **acting: Unpack[Acting]) -> bool:
        return bool(self.store.step("lane_pause", validation.check_key(key), act_of(**acting)))

    def resume(self, key: str, **acting: Unpack[Acting]) -> bool:
        return bool(self.store.step("lane_resume", validation.check_key(key), act_of(**acting)))

    def drain(self, node: str, on: bool, **acting: Unpack[Acting]) -> bool:
        return Nodes(self.store).drain(validation.name("node", node), on, act_of(**acting))

    def counts(self) -> dict[str, int]:
        return record.counts(self.store)

    def lane(self, key: str, most: int = 100) -> Lane:
        return lane.lanes_at(self.store, [validation.check_key(key)], most)[0]

    def lanes(self, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        if state is not None:
            validation.one_of("state", state, lane.STATES)
        return lane.lanes(self.store, prefix, state, most, after)

    def locked(self, key: str) -> Locked:
        """Make the error of a lock that was not free: it names who holds the lane, or why the lane is closed."""
        lane = self.lane(key, 1)
        return Locked(key, lane.holder, why_closed(lane) or "held by another job")

    def nodes(self) -> list[Node]:
        return Nodes(self.store).living()

    def tasks_of(self, app: str) -> set[str] | None:
        """The tasks that the living nodes of this app have; None where no node of the app lives."""
        nodes = [node for node in Nodes(self.store).living() if node.app == app]
        return {task for node in nodes for task in node.tasks} if nodes else None

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        """Write how far a running job is; writes nothing when the token is not the job's any more."""
        self.store.step("job_progress", job_id, token, f"{done}/{total}")

    def holds(self, job_id: str, token: str) -> bool:
        """True while this token owns the job. Raises StoreUnavailable: an error is never an answer."""
        return record.owned(self.store, job_id, token)


def _submitted(request: JobRequest, reply: Any) -> Submission:
    outcome, position, about, _fence, *grab = reply
    if outcome == b"full":
        raise LaneFull(about.decode(), position, request.id)
    if not grab:
        other = about.decode() if outcome in (b"skipped", b"coalesced") else ""
        other = "" if other == request.id else other
        return Submission(request.id, outcome.decode(), position, of=other, _key=request.keys[0])
    instance, winner = grab
    return grab_submission(request, outcome.decode(), position, about.decode(), instance, winner.decode())


def grab_submission(
    request: JobRequest, outcome: Answer, position: int, about: str, instance: Sequence[bytes], winner: str
) -> Submission:
    """The submission of a submit with an instance. `instance`: the step's reply; `winner`: the id that has it."""
    grab, won = parse_instance(*names_in(request.keys[0]), instance), winner == request.id
    state = "incomplete" if not won and grab.state == "running" else grab.state
    job_id = about if outcome == "lost" else request.id
    return Submission(job_id, outcome, position, GrabOutcome(won, state, grab.winner, grab.value))


def check_limit(limit: int) -> int:
    if validation.count("limit", limit) > MAX_LANE_LIMIT:
        raise InvalidJob(f"limit is a whole number from 0 to {MAX_LANE_LIMIT}, not {limit}")
    return limit
