"""Leases of locks in plain code, and the two threads of each process that keep them.

The renewer renews each lease every third of its ttl, all that are due in one round trip. The lease clock needs no
Redis: it sets `lost` when a lease was not confirmed for its whole ttl, however long the renewer waits for an answer. A
forked process has none of its parent's leases.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace

from coordinator.errors import LeaseLost, StoreRefused, StoreUnavailable, WouldDeadlock
from coordinator.jobs.current import current_job
from coordinator.store.client import Store
from coordinator.store.times import milliseconds

_IDLE = 30.0  # seconds after which a thread without leases ends


class Lease:
    """The holder's proof: `fence` goes with its writes, `check()` before an act that must not happen twice."""

    def __init__(self, key: str, job_id: str, token: str, fence: int, holds: Callable[[str, str], bool]) -> None:
        self.key = key
        self.job_id = job_id
        self.token = token
        self.fence = fence
        self.lost = threading.Event()
        self.given_up = False  # by whichever thread ended it
        self._holds = holds

    def check(self) -> None:
        """Raise LeaseLost if the lease is no longer ours; StoreUnavailable if nobody can say."""
        if self.lost.is_set() or not self._holds(self.job_id, self.token):
            self.lost.set()
            raise LeaseLost(self.key, self.fence)


holding: ContextVar[tuple[Lease, ...]] = ContextVar("coordinator_locks", default=())


def held() -> tuple[Lease, ...]:
    """The leases that the calling thread or task took, or inherited, and that nobody has given up since."""
    return tuple(lease for lease in holding.get() if not lease.given_up)


def hold(lease: Lease) -> None:
    holding.set((*held(), lease))


def holders() -> list[tuple[str, str]]:
    """Id and token of the calling job, if any, and of each lock that the calling thread holds."""
    job = current_job()
    own = [(job.id, job.token)] if job else []
    return own + [(lease.job_id, lease.token) for lease in held()]


def would_deadlock(ring: str) -> WouldDeadlock:
    return WouldDeadlock(f"it would wait for itself: {ring}")


@dataclass(frozen=True, slots=True)
class _Term:
    """The times of a lease, in monotonic seconds: when to renew it, and when it ends unless it was renewed."""

    ttl: float
    due: float
    end: float


class Renewer:
    """Renews the leases of this process, and ends those that nobody confirmed."""

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
        """Keep a lease that lasts `ttl` seconds and began after `since`."""
        if self._pid != os.getpid():  # forked: the leases are the parent's, and its threads do not run here
            self._begin()
        with self._changed:
            term = self._terms[lease] = _Term(ttl, since + ttl / 3, since + ttl)
            for thread in self._threads:
                thread.add_term(term)

    def drop(self, lease: Lease) -> None:
        with self._changed:
            self._terms.pop(lease, None)

    def end(self) -> None:
        """Mark as lost each lease that was not confirmed for its whole ttl."""
        now = time.monotonic()
        with self._changed:
            for lease in [lease for lease, term in self._terms.items() if term.end <= now]:
                self._lose(lease)

    def _lose(self, lease: Lease) -> None:
        lease.lost.set()
        self._terms.pop(lease, None)

    def renew(self) -> None:
        """Renew the leases that are due."""
        asked_at = time.monotonic()
        with self._changed:
            due = [(lease, term) for lease, term in self._terms.items() if term.due <= asked_at]
        for (lease, term), ours in zip(due, self._ask(due), strict=True):
            with self._changed:
                if ours is False:
                    self._lose(lease)
                elif lease in self._terms:
                    later = _Term(term.ttl, asked_at + term.ttl / 3, asked_at + term.ttl)
                    self._terms[lease] = later if ours else replace(term, due=asked_at + term.ttl / 10)

    def _ask(self, due: list[tuple[Lease, _Term]]) -> list[bool | None]:
        """Ask Redis whether each lease is still ours; None where nobody can say."""
        calls = [(milliseconds(term.ttl), lease.job_id, lease.token) for lease, term in due]
        try:
            replies = self._store.step_many("lease_renew", calls) if calls else []
        except (StoreUnavailable, StoreRefused):
            return [None] * len(calls)
        return [None if isinstance(reply, Exception) else reply[0] != b"" for reply in replies]


class _TermThread:
    """A thread that calls `act` when the first term is due, by `when`. It runs as long as there are terms."""

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
        """Start or wake the thread for a new term. The caller holds `changed`."""
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
