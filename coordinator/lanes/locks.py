"""A lock in plain code: a place in the lane whose runner is the calling process.

Its turn comes as any job's does: all that stand before it in the line, jobs included, are over first. The step that
admits it also takes it, with the token that the waiter chose: no moment lies between turn and taking. One small thread
per process renews the leases, each third of their ttl. A lease is distrusted before it ends: `check()` asks Redis;
`lost` is set once a renewal says that it is gone, or none succeeded for as long as the lease lasts.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from coordinator.errors import InvalidJob, LeaseLost, Locked, StoreRefused, StoreUnavailable
from coordinator.jobs import validation
from coordinator.jobs.current import current_job
from coordinator.lanes.lanes import Lanes
from coordinator.store.client import Store
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)


T = TypeVar("T")


class Lease:
    """The holder's proof: `fence` goes with its writes, `check()` before an act that must not happen twice."""

    def __init__(self, key: str, job_id: str, token: str, fence: int, holds: Callable[[str, str], bool]) -> None:
        self.key = key
        self.job_id = job_id
        self.token = token
        self.fence = fence
        self.lost = threading.Event()
        self._holds = holds

    def check(self) -> None:
        """Raises LeaseLost when it is no longer ours; StoreUnavailable when nobody can say."""
        if self.lost.is_set() or not self._holds(self.job_id, self.token):
            self.lost.set()
            raise LeaseLost(self.key, self.fence)


def check_lock(name: str, ttl: float, wait: float) -> str:
    """The key."""
    (key,) = validation.check_keys(name)
    if ttl < 0.2 or wait < 0:
        raise InvalidJob(f"lock {name!r}: ttl is at least 0.2 s and wait not below 0, not {ttl} and {wait}")
    return key


def own_lease(key: str, holds: Callable[[str, str], bool]) -> Lease | None:
    """The lease that the calling job has on this key already."""
    job = current_job()
    return Lease(key, job.id, job.token, job.fence, holds) if job and key in job.keys else None


class Locks:
    def __init__(self, store: Store, lanes: Lanes) -> None:
        self.store = store
        self.lanes = lanes
        self._renewer = Renewer(store)

    @contextmanager
    def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> Iterator[Lease]:
        """Hold `name`. Raises Locked when it is not ours within `wait` seconds, LeaseLost at the end when it was lost.

        Inside a job of that key: the job's own lease.
        """
        key = check_lock(name, ttl, wait)
        if own := own_lease(key, self.lanes.holds):
            yield own
            return
        lease, since = self._take(key, ttl, wait)
        self._renewer.add(lease, ttl, since)
        try:
            yield lease
        finally:
            self._renewer.drop(lease)
            released = self._give_up(lease)
        if not released:
            raise LeaseLost(key, lease.fence)

    def _take(self, key: str, ttl: float, wait: float) -> tuple[Lease, float]:
        """One round trip where the lane is free. Also the latest moment at which it was surely not ours yet."""
        job_id, token = f"lock-{os.urandom(16).hex()}", os.urandom(16).hex()
        since = time.monotonic()
        deadline = since + wait
        busy = "queue" if wait else "skip"
        args = (job_id, key, busy, token, milliseconds(ttl))
        try:
            outcome, _, holder, fence = self._insist(lambda: self.store.step("lock_take", *args), deadline)
            if not fence and wait:
                fence, since = self._turn(job_id, deadline)
        except BaseException:
            with suppress(StoreUnavailable, StoreRefused):
                self._release(job_id, token)
            raise
        if not fence:
            if outcome != b"skipped":
                self._release(job_id, token)
            raise Locked(key, self._holder(key) if wait else holder.decode())
        return Lease(key, job_id, token, int(fence), self.lanes.holds), since

    def _insist(self, ask: Callable[[], T], deadline: float) -> T:
        """A lost reply leaves it unknown whether we hold it: ask again, the same, before giving up."""
        try:
            return ask()
        except StoreUnavailable:
            while True:
                time.sleep(0.05)
                try:
                    return ask()
                except StoreUnavailable:
                    if time.monotonic() >= deadline:
                        raise

    def _turn(self, job_id: str, deadline: float) -> tuple[bytes | None, float]:
        """Wait until Redis says that it is our turn; the fence (None when time is up), and since when."""
        client = self.store.connect(self.store.settings.timeout + 1.0)
        turn = self.store.key("turn", job_id)
        try:
            while True:
                left = max(0.01, min(1.0, deadline - time.monotonic()))
                self.store.call(lambda left=left: client.blpop([turn], timeout=left))  # type: ignore[misc]
                asked = time.monotonic()
                state, fence = self.store.step("lock_wait", job_id)
                if state != b"waiting":
                    return (bytes(fence) if state == b"running" else None), asked
                if asked >= deadline:
                    return None, asked
        finally:
            client.close()

    def _give_up(self, lease: Lease) -> bool:
        """Whether it was ours to the end. A Redis that is silent now undoes nothing that was done under it."""
        try:
            return self._release(lease.job_id, lease.token)
        except (StoreUnavailable, StoreRefused) as error:
            logger.warning("lock %s: not released, it ends with its lease: %s", lease.key, error)
            return not lease.lost.is_set()

    def _release(self, job_id: str, token: str) -> bool:
        state = self._insist(lambda: self.store.step("lock_release", job_id, token), time.monotonic() + 2.0)
        return bool(state == b"released")

    def _holder(self, key: str) -> str | None:
        return self.lanes.lane(key, 1).holder


class Renewer:
    """One thread that renews this process's leases; it wakes only when one is due, and ends when there are none."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: dict[Lease, _Term] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes = float("inf")

    def add(self, lease: Lease, ttl: float, since: float) -> None:
        """Keep the lease, which lasts `ttl` seconds and began after `since`."""
        due = since + ttl / 3
        with self._changed:
            self._leases[lease] = _Term(ttl, due, since + ttl)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="coordinator-renewer", daemon=True)
                self._thread.start()
            elif due < self._wakes:
                self._changed.notify()

    def drop(self, lease: Lease) -> None:
        with self._changed:
            self._leases.pop(lease, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._leases:
                    self._wakes = time.monotonic() + 30.0
                    if not self._changed.wait_for(lambda: self._leases, timeout=30.0):
                        self._thread = None
                        return
                self._wakes = min(term.due for term in self._leases.values())
                if (pause := self._wakes - time.monotonic()) > 0:
                    self._changed.wait(pause)
            self.step()

    def step(self) -> None:
        """Renew what is due. A lease that nobody confirmed for its whole ttl counts as lost."""
        with self._changed:
            now = time.monotonic()
            due = [(lease, term) for lease, term in self._leases.items() if term.due <= now]
        for lease, term in due:
            asked = time.monotonic()
            try:
                ours = self._store.step("lease_renew", milliseconds(term.ttl), lease.job_id, lease.token)[0] != b""
                after = _Term(term.ttl, asked + term.ttl / 3, asked + term.ttl)
            except (StoreUnavailable, StoreRefused):
                ours = time.monotonic() < term.end
                after = _Term(term.ttl, asked + term.ttl / 10, term.end)
            with self._changed:
                if not ours:
                    lease.lost.set()
                    self._leases.pop(lease, None)
                elif lease in self._leases:
                    self._leases[lease] = after


@dataclass(frozen=True, slots=True)
class _Term:
    """The times of one lease, in monotonic seconds: when to renew it, and when it ends unless that succeeded."""

    ttl: float
    due: float
    end: float
