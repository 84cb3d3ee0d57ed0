"""The leases of locks and grabs, and the two threads of each process that look after them.

The thread `coordinator-renewer` renews each lease after a third of its ttl, all due leases in one round trip. The
thread `coordinator-lease-clock` calls no Redis: it marks a lease as lost when Redis has not confirmed it for its whole
ttl, even while the renewer still waits for a reply. A forked process has none of the leases of its parent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace

from coordinator.core.jobs.current import current_job
from coordinator.core.store.client import Store
from coordinator.core.store.step import many
from coordinator.core.store.steps import lease_renew
from coordinator.core.store.times import milliseconds
from coordinator.errors import LeaseLost, StoreRefused, StoreUnavailable, WouldDeadlock

_IDLE = 30.0  # seconds after which one of the two threads ends if the process has no leases


class Lease:
    """The right of this process to hold the lane `key` for a limited time, which is renewed. Pass `fence` with each
    write, and call `check()` before an action that must not happen twice.

    `job_id`, `token`: of the lock in Redis. `lost`: set once the lease is lost. `given_up`: True once the holder has
    released it. `holds(job_id, token)`: asks Redis whether the token still owns the lane.
    """

    def __init__(self, key: str, job_id: str, token: str, fence: int, holds: Callable[[str, str], bool]) -> None:
        self.key = key
        self.job_id = job_id
        self.token = token
        self.fence = fence
        self.lost = threading.Event()
        self.given_up = False  # may be set by another thread than the one that took the lease
        self._holds = holds

    def check(self) -> None:
        """Raise LeaseLost if this process has lost the lease, and StoreUnavailable if Redis does not answer."""
        if self.lost.is_set() or not self._holds(self.job_id, self.token):
            self.lost.set()
            raise LeaseLost(self.key, self.fence)


holding: ContextVar[tuple[Lease, ...]] = ContextVar("coordinator_locks", default=())


def held() -> tuple[Lease, ...]:
    """Return the leases that the calling thread or asyncio task holds: those that it took, or inherited from the task
    that created it.
    """
    return tuple(lease for lease in holding.get() if not lease.given_up)


def hold(lease: Lease) -> None:
    holding.set((*held(), lease))


def holders() -> list[tuple[str, str]]:
    """Return id and token of the job that the calling code runs in, if any, and of each lock that it holds."""
    job = current_job()
    own = [(job.id, job.token)] if job else []
    return own + [(lease.job_id, lease.token) for lease in held()]


def would_deadlock(ring: str) -> WouldDeadlock:
    return WouldDeadlock(f"it would wait for itself: {ring}")


@dataclass(frozen=True, slots=True)
class _Term:
    """The times of a lease. `ttl`: seconds. `due`: when to renew the lease, and `end`: when it ends unless it was
    renewed, both by `time.monotonic()`.
    """

    ttl: float
    due: float
    end: float


class Renewer:
    """Renews the leases of this process, and marks those as lost that Redis did not confirm in time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._terms: dict[Lease, _Term] = {}
        self._changed = threading.Condition()
        self._threads = (
            _TermThread("coordinator-renewer", self._terms, self._changed, lambda term: term.due, self.renew),
            _TermThread("coordinator-lease-clock", self._terms, self._changed, lambda term: term.end, self.end),
        )

    def add(self, lease: Lease, ttl: float, since: float) -> None:
        """Renew `lease` from now on. `ttl`: seconds for which a renewal is valid; `since`: a time before the lease
        began (`time.monotonic()`), from which the first ttl counts.
        """
        if self._pid != os.getpid():  # in a forked process: leases and threads are those of the parent
            self._begin()
        with self._changed:
            term = self._terms[lease] = _Term(ttl, since + ttl / 3, since + ttl)
            for thread in self._threads:
                thread.add_term(term)

    def drop(self, lease: Lease) -> None:
        with self._changed:
            self._terms.pop(lease, None)

    def end(self) -> None:
        """Mark each lease as lost that Redis has not confirmed for its whole ttl."""
        now = time.monotonic()
        with self._changed:
            for lease in [lease for lease, term in self._terms.items() if term.end <= now]:
                self._lose(lease)

    def _lose(self, lease: Lease) -> None:
        lease.lost.set()
        self._terms.pop(lease, None)

    def renew(self) -> None:
        """Renew the leases that are due, in one round trip. Mark those as lost that Redis refuses to renew; if Redis
        does not answer, try again after a tenth of the ttl.
        """
        asked_at = time.monotonic()  # before the request, so that the lease ends here no later than in Redis
        with self._changed:
            due = [(lease, term) for lease, term in self._terms.items() if term.due <= asked_at]
        for (lease, term), ours in zip(due, self._renewed(due), strict=True):
            with self._changed:
                if ours is False:
                    self._lose(lease)
                elif lease in self._terms:
                    later = _Term(term.ttl, asked_at + term.ttl / 3, asked_at + term.ttl)
                    self._terms[lease] = later if ours else replace(term, due=asked_at + term.ttl / 10)

    def _renewed(self, due: list[tuple[Lease, _Term]]) -> list[bool | None]:
        """Renew these leases in Redis. Returns for each True, False if it is lost, or None if Redis did not answer."""
        calls = [lease_renew.of(milliseconds(term.ttl), lease.job_id, lease.token) for lease, term in due]
        try:
            replies = many(self._store, calls)
        except (StoreUnavailable, StoreRefused):
            return [None] * len(calls)
        return [None if isinstance(reply, Exception) else reply[0] != b"" for reply in replies]


class _TermThread:
    """A thread that calls `act` whenever `when(term)`, a time of `time.monotonic()`, is reached for one of the `terms`.
    The thread ends when there have been no terms for 30 s. `changed`: guards `terms`, and wakes the thread.
    """

    def __init__(
        self,
        name: str,
        terms: dict[Lease, _Term],
        changed: threading.Condition,
        when: Callable[[_Term], float],
        act: Callable[[], None],
    ) -> None:
        self._name = name
        self._terms = terms
        self._changed = changed
        self._when = when
        self._act = act
        self._thread: threading.Thread | None = None
        self._wakes = float("inf")

    def add_term(self, term: _Term) -> None:
        """Start the thread for a new term, or wake it if the term comes first. The caller must hold `changed`."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        elif self._when(term) < self._wakes:
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._terms:
                    self._wakes = time.monotonic() + _IDLE
                    if not self._changed.wait_for(lambda: self._terms, timeout=_IDLE):
                        self._thread = None
                        return
                self._wakes = min(self._when(term) for term in self._terms.values())
                if (pause := self._wakes - time.monotonic()) > 0:
                    self._changed.wait(pause)
            self._act()
