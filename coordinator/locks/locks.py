"""Locks in plain code: a lock is a place in the lane, and the calling process is its runner.

The turn of a lock comes as a job's does, when all that stand before it in the line are over. The step that admits the
lock also claims it, with the token that the waiter chose, so nobody can come in between. `leases.py` renews the locks
that are held, and notices when one is lost.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple, Protocol

from coordinator.errors import LeaseLost, Locked, StoreRefused, StoreUnavailable
from coordinator.jobs import validation
from coordinator.jobs.current import current_job
from coordinator.locks.leases import Lease, Renewer, hold, holders, would_deadlock
from coordinator.store.client import Store
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_AWAY = (StoreUnavailable, StoreRefused)
_ASKS = 1.0  # seconds at most between two requests of a waiter: after 3 of silence it counts as dead (rules/locks.lua)


def check_lock(name: str, ttl: float, blocking_timeout: float | None) -> str:
    """Check the arguments of a lock, and return its key."""
    validation.span("ttl", ttl, 0.2)
    if blocking_timeout is not None:
        validation.span("blocking_timeout (None: for ever)", blocking_timeout)
    return validation.check_key(name)


def own_lease(key: str) -> Lease | None:
    """The lease that the calling job already has on this key, if any."""
    job = current_job()
    if job is None or key not in job.keys:
        return None
    return Lease(key, job.id, job.token, job.fence, lambda *_: job.holds())


class LaneReader(Protocol):
    """The methods of `LaneReader` that locks call."""

    def holds(self, job_id: str, token: str) -> bool: ...

    def locked(self, key: str) -> Locked: ...


class _LockRequest(NamedTuple):
    """A request for a place in the line of a lane. `waits`: False where only a free lane will do."""

    id: str
    token: str
    key: str
    ttl: float
    waits: bool


class Locks:
    def __init__(self, store: Store, lanes: LaneReader, renewer: Renewer | None = None) -> None:
        self.store = store
        self.lanes = lanes
        self._renewer = renewer or Renewer(store)

    @contextmanager
    def lock(self, name: str, ttl: float = 30.0, blocking_timeout: float | None = 0.0) -> Iterator[Lease]:
        """Hold `name`. Inside a job of that key, give the job's own lease.

        Raises Locked when the lock is not ours within `blocking_timeout` seconds (0: at once, None: never),
        WouldDeadlock where it never can be, and LeaseLost at the end when it was lost.
        """
        key = check_lock(name, ttl, blocking_timeout)
        if own := own_lease(key):
            yield own
            return
        lease, since = self._take(key, ttl, math.inf if blocking_timeout is None else blocking_timeout)
        pid = os.getpid()
        self._renewer.add(lease, ttl, since)
        hold(lease)
        released = True
        try:
            yield lease
        finally:
            lease.given_up = True
            if os.getpid() == pid:  # a forked child does not own the lock
                self._renewer.drop(lease)
                released = self._give_up(lease)
        if not released:
            raise LeaseLost(key, lease.fence)

    def _take(self, key: str, ttl: float, wait: float) -> tuple[Lease, float]:
        """Take the lock, in one round trip where the lane is free. Also return the last moment before it was ours."""
        deadline = time.monotonic() + wait
        while True:
            request = _LockRequest(f"lock-{os.urandom(16).hex()}", os.urandom(16).hex(), key, ttl, wait > 0)
            try:
                fence, since, holder = self._ask(request, deadline)
            except BaseException:
                with suppress(*_AWAY):
                    self._release(request.id, request.token)
                raise
            if fence:
                return Lease(key, request.id, request.token, int(fence), self.lanes.holds), since
            if holder is not None:
                break
        if not holder:
            self._release(request.id, request.token)
        raise self._locked(key, holder or None)

    def _ask(self, request: _LockRequest, deadline: float) -> tuple[bytes | None, float, str | None]:
        """Ask for the lock once. Returns the fence or None, since when it is ours, and who holds it instead.

        The holder is '' where time is up and nobody is known; None where the place in line was lost, because Redis lost
        its data or this process stood still for too long.
        """
        since = time.monotonic()
        lifetime = milliseconds(self.store.settings.max_lifetime)
        others = [part for pair in holders() for part in pair]
        when_busy = "queue" if request.waits else "skip"
        args = (request.id, request.key, when_busy, request.token, milliseconds(request.ttl), lifetime)
        outcome, _, other, fence = self.store.insist(lambda: self.store.step("lock_take", *args, *others), deadline)
        if outcome == b"deadlock":
            raise would_deadlock(other.decode())
        if fence:
            return fence, since, None
        if not request.waits:
            held = outcome == b"skipped" and other.decode() != request.id  # nobody stands in a lane that is paused
            return None, since, other.decode() if held else ""
        return self._turn(request.id, deadline)

    def _turn(self, job_id: str, deadline: float) -> tuple[bytes | None, float, str | None]:
        """Wait until Redis says that it is our turn, also while Redis is away for a time. Returns what `_ask` does."""
        with self.store.pop(self.store.key("turn", job_id)) as pop:
            while True:
                since = time.monotonic()
                try:
                    pop(max(0.01, min(_ASKS, deadline - time.monotonic())))
                    since = time.monotonic()
                    state, fence = self.store.step("lock_wait", job_id)
                except _AWAY:
                    if since >= deadline:
                        raise
                    self.store.pause(0.05)
                    continue
                if state == b"deadlock":
                    raise would_deadlock(fence.decode())
                if state == b"running":
                    return fence, since, None
                if since >= deadline:
                    return None, since, ""
                if state != b"waiting":
                    return None, since, None if state in (b"", b"failed") else ""

    def _give_up(self, lease: Lease) -> bool:
        """Release the lock; False if it was lost before. A silent Redis takes back nothing that was done under it."""
        try:
            return self._release(lease.job_id, lease.token)
        except (StoreUnavailable, StoreRefused) as error:
            logger.warning("lock %s: not released, it ends with its lease: %s", lease.key, error)
            return not lease.lost.is_set()

    def _release(self, job_id: str, token: str) -> bool:
        ask = partial(self.store.step, "lock_release", job_id, token)
        state = self.store.insist(ask, time.monotonic() + 2.0)
        return bool(state == b"released")

    def _locked(self, key: str, holder: str | None) -> Locked:
        if holder:
            return Locked(key, holder)
        return self.lanes.locked(key)
