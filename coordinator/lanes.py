"""Lanes: put jobs in line, look at them, wait for them, cancel them.

Redis holds the truth; a doorbell only says that there is work. `ring(node, bell)` publishes one and never raises; where
there is none (a plain client), the node's warden rings at its next look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from kombu.utils.json import loads

from coordinator import checks, line
from coordinator.drafts import Draft
from coordinator.errors import InvalidJob, LaneFull, UnknownJob, WaitTimeout
from coordinator.jobs import Job, Submission, counts, parse
from coordinator.line import Lane
from coordinator.nodes import Nodes
from coordinator.store import Store, milliseconds

Ring = Callable[[str, str], None]

_RING_AGAIN = 2.0  # seconds after which the node's warden rings, should our doorbell be lost
_CHUNK = 200
ENDS = ("back", "front")
MAX_LIMIT = 1000


class Lanes:
    def __init__(self, store: Store, ring: Ring | None = None) -> None:
        self.store = store
        self._ring = ring
        self._delay = milliseconds(_RING_AGAIN) if ring else 0

    def submit(self, draft: Draft) -> Submission:
        """Raises StoreUnavailable(job_id) when it is unknown whether it was done: ask again with that id."""
        reply = self.store.run("job_submit", *draft.script_args(self._delay), job_id=draft.id)
        return self._submitted(draft, reply)

    def submit_many(self, drafts: Iterable[Draft]) -> list[Submission]:
        """In round trips of 200. An error ends it; asking again with the same ids is safe."""
        waiting, done = list(drafts), []
        for start in range(0, len(waiting), _CHUNK):
            chunk = waiting[start : start + _CHUNK]
            replies = self.store.run_many("job_submit", [d.script_args(self._delay) for d in chunk])
            for draft, reply in zip(chunk, replies, strict=True):
                self.store.checked(reply, draft.id)
                done.append(self._submitted(draft, reply))
        return done

    def _submitted(self, draft: Draft, reply: Any) -> Submission:
        outcome, position, found, _fence, rung = reply
        if outcome == b"full":
            raise LaneFull(found.decode(), position, draft.id)
        self.ring_all(rung)
        return Submission(draft.id, outcome.decode(), position)

    def ring_all(self, rung: Iterable[Sequence[bytes]]) -> None:
        for node, bell in rung:
            if self._ring:
                self._ring(node.decode(), bell.decode())

    def job(self, job_id: str) -> Job:
        """Raises UnknownJob. The id of a coalesced submit shows the job it melted into."""
        record = self._record(job_id)
        if b"alias" in record:
            return parse(record[b"alias"].decode(), self._record(record[b"alias"].decode()))
        return parse(job_id, record)

    def spec(self, job_id: str) -> dict[str, Any]:
        """The part of a record that only its runner reads: args, kwargs, links, headers."""
        return cast(dict[str, Any], loads(self._record(job_id).get(b"spec", b"{}")))

    def _record(self, job_id: str) -> dict[bytes, bytes]:
        record = self.store.call(lambda: self.store.client.hgetall(self.store.key("job", job_id)), job_id=job_id)
        if not record:
            raise UnknownJob(job_id)
        return cast(dict[bytes, bytes], record)

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job once it is over, or held. Raises WaitTimeout (the job goes on), UnknownJob, StoreUnavailable.

        Listens for its end, and looks each second should the notice be lost.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        job = self.job(job_id)
        if job.waited_for:
            return job
        with self.store.call(lambda: self.store.client.pubsub(ignore_subscribe_messages=True)) as notices:
            self.store.call(lambda: notices.subscribe(self.store.key("done", job.id)))
            while not (job := self.job(job.id)).waited_for:
                left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                if left <= 0:
                    raise WaitTimeout(job_id, job.state)
                self.store.call(lambda left=left: notices.get_message(timeout=left))  # type: ignore[misc]
        return job

    def cancel(self, job_id: str, *, why: str = "", by: str = "") -> str:
        """End a job; its state after the call. A running one (`running`) ends once its process was stopped.

        A job that was started is rolled back, where it has a rollback.
        """
        return self._acted("job_cancel", job_id, why, by)

    def retry(self, job_id: str, *, to: str = "back", why: str = "", by: str = "") -> str:
        """A held job goes on, a retrying one at once; one that ended badly joins its lines anew, at the back or front
        of those of its priority. Its state after the call.
        """
        return self._acted("job_retry", job_id, why, by, checks.one_of("to", to, ENDS))

    def move(
        self, job_id: str, *, priority: int | None = None, to: str = "back", why: str = "", by: str = "",
        token: str | None = None,
    ) -> str:  # fmt: skip
        """Give a job that was not started another place in all its lines: back or front of those of its priority.

        Its state after the call. Raises InvalidJob where it was started, or stands in no line. Asked again with the
        same `token` after StoreUnavailable, it is moved once, unless it was moved otherwise meanwhile; without one,
        once more.
        """
        number = "" if priority is None else checks.priority(priority)
        args = (job_id, number, checks.one_of("to", to, ENDS), why, by, token or "")
        state, moved, rung = self.store.run("job_move", *args, job_id=job_id)
        if not state:
            raise UnknownJob(job_id)
        if not moved:
            raise InvalidJob(f"job {job_id} is {state.decode()}: only one that waits can be moved")
        self.ring_all(rung)
        return cast(str, state.decode())

    def set_limit(self, key: str, limit: int, *, why: str = "", by: str = "") -> int:
        """Let so many jobs of this lane run at once, strictly in line; 1 is usual, at 0 nothing starts.

        Raising it starts waiters at once, lowering it stops nobody. The limit before.
        """
        number = checks.count("limit", limit)
        if number > MAX_LIMIT:
            raise InvalidJob(f"limit is a whole number from 0 to {MAX_LIMIT}, not {limit}")
        before, rung = self.store.run("lane_limit", checks.check_keys(key)[0], number, why, by)
        self.ring_all(rung)
        return int(before)

    def _acted(self, script: str, job_id: str, why: str, by: str, *more: str) -> str:
        state, rung = self.store.run(script, job_id, why, by, *more, job_id=job_id)
        if not state:
            raise UnknownJob(job_id)
        self.ring_all(rung)
        return cast(str, state.decode())

    def release(self, key: str, *, why: str, by: str = "", holder: str = "") -> str | None:
        """Take the lane from the job that was started, which ends as cancelled, without rollback; the next goes on.

        `holder`: only if it is this job: who asks twice takes it from nobody else. The id of who held it; None: nobody
        did. A job that was not started holds nothing: cancel it.
        """
        job_id, rung = self.store.run("lane_release", checks.check_keys(key)[0], why, by, holder)
        self.ring_all(rung)
        return job_id.decode() or None

    def pause(self, key: str, *, why: str = "", by: str = "") -> bool:
        """Nothing more of this lane starts. False: it was paused already."""
        return bool(self.store.run("lane_pause", checks.check_keys(key)[0], why, by))

    def resume(self, key: str, *, why: str = "", by: str = "") -> bool:
        """False: it was not paused. Who did it is kept in the record of the job that waited in front."""
        was, rung = self.store.run("lane_resume", checks.check_keys(key)[0], why, by)
        self.ring_all(rung)
        return bool(was)

    def drain(self, node: str, on: bool, *, why: str = "", by: str = "") -> bool:
        """Give a node of that name nothing new, or again. False: it was so already."""
        changed, rung = Nodes(self.store).drain(checks.check_node(node), on, why, by)
        self.ring_all(rung)
        return changed

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state, ended in each outcome, were `created`; and `retries`, `losses`, `faults`."""
        return counts(self.store)

    def lane(self, key: str, most: int = 100) -> Lane:
        return line.look(self.store, checks.check_keys(key), most)[0]

    def lanes(self, prefix: str = "", state: str | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        """Lanes not empty, paused, or with a limit of their own, by key, which begins with `prefix`.

        `state`: of the first job in line. `after`: the last key of the page before.
        """
        return line.lanes(self.store, prefix, state, most, after)

    def tasks_of(self, app: str) -> set[str] | None:
        """The tasks that living nodes of this app have; None: none of them lives."""
        nodes = [node for node in Nodes(self.store).all() if node.app == app]
        return {task for node in nodes for task in node.tasks} if nodes else None

    def progress(self, job_id: str, token: str, done: int, total: int) -> None:
        """Say how far a running job is; nothing is written when the token is not the job's any more."""
        self.store.run("job_progress", job_id, token, f"{done}/{total}")

    def holds(self, job_id: str, token: str) -> bool:
        """Is this token still the one that owns the job? Raises StoreUnavailable: an error is never an answer."""
        ask = self.store.client.hmget
        found = self.store.call(lambda: ask(self.store.key("job", job_id), "token", "state", "condemned"))
        current, state, condemned = found
        return bool(current == token.encode() and state in (b"running", b"ready") and condemned != current)
