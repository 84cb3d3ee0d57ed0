"""Lanes: put jobs in line, look at them, wait for them, cancel them.

Redis holds the truth; a doorbell only says that there is work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

from kombu.utils.json import loads

from coordinator.errors import InvalidJob, LaneFull, StoreRefused, StoreUnavailable, UnknownJob, WaitTimeout
from coordinator.fleet.nodes import Node, Nodes
from coordinator.jobs import record, validation
from coordinator.jobs.instances import found, names_in
from coordinator.jobs.record import Job
from coordinator.jobs.request import JobRequest
from coordinator.jobs.spec import Spec
from coordinator.jobs.states import Answer, End, LaneState, State
from coordinator.jobs.submission import Submission
from coordinator.lanes import lane
from coordinator.lanes.grabs import end_of_process
from coordinator.lanes.lane import Lane
from coordinator.lanes.leases import holders, would_deadlock
from coordinator.store.client import Store

_CHUNK = 200
_TOLD = 2.0  # seconds for which `wait` leaves time for a result to reach the backend
ENDS = ("back", "front")
MAX_LIMIT = 1000


class Lanes:
    def __init__(self, store: Store) -> None:
        self.store = store

    def submit(self, request: JobRequest) -> Submission:
        """Raises StoreUnavailable(job_id) when it is unknown whether it was done: ask again with that id."""
        return self._told(request, lambda: self.store.step("job_submit", *request.step_args(), job_id=request.id))

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        """In round trips of 200. An error ends it, and names the ids of all: asking again with them is safe."""
        waiting = list(requests)
        try:
            chunks = (waiting[start : start + _CHUNK] for start in range(0, len(waiting), _CHUNK))
            return [told for chunk in chunks for told in self._submit_chunk(chunk)]
        except (LaneFull, StoreUnavailable, StoreRefused) as error:
            error.job_ids = tuple(request.id for request in waiting)
            raise

    def _submit_chunk(self, chunk: list[JobRequest]) -> list[Submission]:
        replies = self.store.step_many("job_submit", [request.step_args() for request in chunk])
        asks = [partial(self.store.checked, reply, one.id) for one, reply in zip(chunk, replies, strict=True)]
        return [self._told(request, ask) for request, ask in zip(chunk, asks, strict=True)]

    def _told(self, request: JobRequest, ask: Callable[[], Any]) -> Submission:
        try:
            return _submitted(request, ask())
        except StoreRefused as error:
            # A full Redis refuses the step before it looks: one that it has done before is a duplicate all the same.
            if not error.full or not any(record.fields(self.store, request.id, "state", "alias")):
                raise
            return Submission(request.id, "duplicate", -1)

    def job(self, job_id: str) -> Job:
        """Raises UnknownJob. The id of a submit that melted, or of a call that was skipped, shows the other job."""
        found = record.read(self.store, job_id)
        if other := found.get(b"alias") or found.get(b"skipped"):
            job_id = other.decode()
            found = record.read(self.store, job_id)
        return record.parse(job_id, found)

    def spec(self, job_id: str) -> Spec:
        """The part of a record that only its runner reads: args, kwargs, links, headers."""
        spec: Spec = loads(record.spec_of(record.read(self.store, job_id)))
        return spec

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job once it is over, or held. Raises WaitTimeout (the job goes on), UnknownJob, StoreUnavailable, and
        WouldDeadlock where it waits for the job that the caller is, or for a lock that the caller holds.

        Listens for its end, and looks now and then, should the notice be lost (`Connections.patience`). Where the app
        stores the job's result, the backend has it by then, unless it is slower than two seconds after the job's end.
        The id of a process that won an instance will do, too.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        job = self.job(job_id)
        if job.waited_for:
            self._until_told(job.id, deadline)
            return job
        if job_id.startswith(validation.GRABS):
            return end_of_process(self.store, job, deadline)
        with self._awaited(job.id) as look, self.store.listening(self.store.key("done", job.id)) as listen:
            while not (job := self.job(job.id)).waited_for:
                left = math.inf if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(job_id, job.state)
                look()
                listen(left)
        self._until_told(job.id, deadline)
        return job

    def _until_told(self, job_id: str, deadline: float | None) -> None:
        """Until its result and links were sent, or two seconds are over since its end."""
        owed, kind, ended = record.fields(self.store, job_id, "tell", "class", "ended")
        until, pause, unsent = math.inf, 0.001, self.store.key("unsent", kind.partition("\n")[0])
        while owed and time.monotonic() < until and self.store.read("ZSCORE", unsent, job_id) is not None:
            if until == math.inf:
                passed = (self.store.now() - int(ended or 0)) / 1000
                until = min(deadline or math.inf, time.monotonic() + _TOLD - passed)
            self.store.pause(pause)
            pause = min(0.05, pause * 2)

    @contextmanager
    def _awaited(self, job_id: str) -> Iterator[Callable[[], None]]:
        """Others see what the caller's job and locks wait for. Call it again and again: a ring may close later."""
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

    def cancel(self, job_id: str, *, why: str = "", by: str = "") -> State:
        """End a job; its state after the call. A running one (`running`) ends once its process was stopped.

        A job that was started is rolled back, where it has a rollback.
        """
        return self._acted("job_cancel", job_id, why, by)

    def revoke(self, job_id: str, *, why: str = "", by: str = "") -> str:
        """End a job that has not begun, or waits for its retry; its state after the call. Any other goes on."""
        return self._acted("job_cancel", job_id, why, by, "1")

    def retry(self, job_id: str, *, to: End = "back", why: str = "", by: str = "") -> State:
        """A held job goes on, a retrying one at once; one that ended badly joins its lines anew, at the back or front
        of those of its priority. Its state after the call.
        """
        return self._acted("job_retry", job_id, why, by, validation.one_of("to", to, ENDS))

    def move(
        self, job_id: str, *, priority: int | None = None, to: End = "back", why: str = "", by: str = "",
        token: str | None = None,
    ) -> State:  # fmt: skip
        """Give a job that was not started another place in all its lines: back or front of those of its priority.

        Its state after the call. Raises InvalidJob where it was started, or stands in no line. Asked again with the
        same `token` after StoreUnavailable, it is moved once, unless it was moved otherwise meanwhile; without one,
        once more.
        """
        number = "" if priority is None else validation.priority(priority)
        args = (job_id, number, validation.one_of("to", to, ENDS), why, by, token or "")
        state, moved = self.store.step("job_move", *args, job_id=job_id)
        if not state:
            raise UnknownJob(job_id)
        if not moved:
            raise InvalidJob(f"job {job_id} is {state.decode()}: only one that waits can be moved")
        return cast(State, state.decode())

    def set_limit(self, key: str, limit: int, *, why: str = "", by: str = "") -> int:
        """Let so many jobs of this lane run at once, strictly in line; 1 is usual, at 0 nothing starts.

        Raising it starts waiters at once, lowering it stops nobody. The limit before.
        """
        return int(self.store.step("lane_limit", validation.check_keys(key)[0], check_limit(limit), why, by))

    def _acted(self, step: str, job_id: str, why: str, by: str, *more: str) -> State:
        state = self.store.step(step, job_id, why, by, *more, job_id=job_id)
        if not state:
            raise UnknownJob(job_id)
        return cast(State, state.decode())

    def release(self, key: str, *, why: str, by: str = "", holder: str = "") -> str | None:
        """Take the lane from the job that was started, which ends as cancelled, without rollback; the next goes on.

        `holder`: only if this job holds it, so that a repeated call takes it from no other. Returns the holder's id;
        None: no job held it. A job that was not started holds nothing: cancel it.
        """
        return self.store.step("lane_release", validation.check_keys(key)[0], why, by, holder).decode() or None

    def pause(self, key: str, *, why: str = "", by: str = "") -> bool:
        """Nothing more of this lane starts. False: it was paused already."""
        return bool(self.store.step("lane_pause", validation.check_keys(key)[0], why, by))

    def resume(self, key: str, *, why: str = "", by: str = "") -> bool:
        """False: it was not paused. The record of the job that waited in front keeps who resumed the lane, and why."""
        return bool(self.store.step("lane_resume", validation.check_keys(key)[0], why, by))

    def drain(self, node: str, on: bool, *, why: str = "", by: str = "") -> bool:
        """Give a node of that name nothing new, or again. False: it was so already."""
        return Nodes(self.store).drain(validation.check_node(node), on, why, by)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state, ended in each outcome, were `created`; and `retries`, `losses`, `faults`."""
        return record.counts(self.store)

    def lane(self, key: str, most: int = 100) -> Lane:
        return lane.look(self.store, validation.check_keys(key), most)[0]

    def lanes(self, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        """Lanes not empty, paused, or with a limit of their own, by key, which begins with `prefix`.

        `state`: of the first job in line. `after`: the last key of the page before.
        """
        if state is not None:
            validation.one_of("state", state, lane.STATES)
        return lane.lanes(self.store, prefix, state, most, after)

    def nodes(self) -> list[Node]:
        """The nodes that are alive, by name."""
        return Nodes(self.store).living()

    def tasks_of(self, app: str) -> set[str] | None:
        """The tasks that living nodes of this app have; None: none of them lives."""
        nodes = [node for node in Nodes(self.store).all() if node.app == app]
        return {task for node in nodes for task in node.tasks} if nodes else None

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        """Say how far a running job is; nothing is written when the token is not the job's any more."""
        self.store.step("job_progress", job_id, token, f"{done}/{total}")

    def holds(self, job_id: str, token: str) -> bool:
        """Is this token still the one that owns the job? Raises StoreUnavailable: an error is never an answer."""
        return record.owned(self.store, job_id, token)


def _submitted(request: JobRequest, reply: Any) -> Submission:
    outcome, position, about, _fence, *grab = reply
    if outcome == b"full":
        raise LaneFull(about.decode(), position, request.id)
    if not grab:
        other = about.decode() if outcome in (b"skipped", b"coalesced") else ""
        return Submission(request.id, outcome.decode(), position, of="" if other == request.id else other)
    told, winner = grab
    return grab_submission(request, outcome.decode(), position, about.decode(), told, winner.decode())


def grab_submission(
    request: JobRequest, outcome: Answer, position: int, about: str, told: Sequence[bytes], winner: str
) -> Submission:
    """That of a submit with an instance. `told`: the instance; `winner`: the id that has it."""
    grab, won = found(*names_in(request.keys[0]), told), winner == request.id
    state = "incomplete" if not won and grab.state == "running" else grab.state
    job_id = about if outcome == "lost" else request.id
    return Submission(job_id, outcome, position, won, state, grab.winner, _kept=grab.value)


def check_limit(limit: int) -> int:
    if validation.count("limit", limit) > MAX_LIMIT:
        raise InvalidJob(f"limit is a whole number from 0 to {MAX_LIMIT}, not {limit}")
    return limit
