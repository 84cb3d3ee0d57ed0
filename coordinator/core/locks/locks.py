"""Locks: plain code in any process takes a place in the line of a lane, and holds the lane as a job does.

A lock gets the lane when all jobs and locks before it in the line are over. The step in Redis that gives the lane to
the lock also begins its lease, with the token that the waiting process chose. `leases.py` renews the leases of held
locks, and notices when one is lost.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import NamedTuple, Protocol

from coordinator.core.jobs import validation
from coordinator.core.jobs.current import current_job
from coordinator.core.jobs.options import Uses
from coordinator.core.jobs.uses import read_uses, text_of_uses, uses_in
from coordinator.core.locks.leases import Lease, Renewer, hold, holders, would_deadlock
from coordinator.core.store.client import Store
from coordinator.core.store.step import Reply
from coordinator.core.store.steps import lock_release, lock_take, lock_wait
from coordinator.core.store.times import milliseconds
from coordinator.errors import InvalidJob, LeaseLost, Locked, StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)

_AWAY = (StoreUnavailable, StoreRefused)
# Seconds at most between two requests of a waiting lock: after 3 s without one, it counts as dead (rules/locks.lua).
_POLL = 1.0


def check_lock(
    name: str | None, ttl: float, blocking_timeout: float | None, uses: Uses | None, open_: bool = False
) -> tuple[str, str]:
    """Check the arguments of a lock. Returns its key, "" for a lock that only uses quotas, and its uses as a record
    keeps them. `open_`: a quota that nobody declared has no bounds, and is not refused.
    """
    validation.span("ttl", ttl, 0.2)
    if blocking_timeout is not None:
        validation.span("blocking_timeout (None: for ever)", blocking_timeout)
    own = {} if uses is None else read_uses(uses)
    if name is None and not own:
        raise InvalidJob("a lock has a name, or uses a quota: lock('order/42'), lock(uses='licence')")
    return "" if name is None else validation.check_key(name), text_of_uses(own, open_=open_)


def own_lease(key: str) -> Lease | None:
    """Return the lease that the calling code already has on `key` as a part of a job of this key; else None."""
    job = current_job()
    if job is None or key not in job.keys:
        return None
    return Lease(key, job.id, job.token, job.fence, lambda *_: job.holds())


def _shown(uses: str) -> str:
    """The quotas of a lock without a key, for its errors."""
    return ", ".join(uses_in(uses))


class LaneReader(Protocol):
    """The methods of `LaneClient` that locks call."""

    def holds(self, job_id: str, token: str) -> bool: ...

    def locked(self, key: str) -> Locked: ...

    def check_quotas(self, reply: Reply) -> None: ...


class _LockRequest(NamedTuple):
    """A request for a place in the line of a lane. `key`: "" for none. `uses`: as a record keeps them. `waits`: False
    to take a free lane only.
    """

    id: str
    token: str
    key: str
    uses: str
    ttl: float
    waits: bool


class Locks:
    """Takes and releases the locks of this process. `renewer`: renews them; None to create one."""

    def __init__(self, store: Store, lanes: LaneReader, renewer: Renewer | None = None) -> None:
        self.store = store
        self.lanes = lanes
        self._renewer = renewer or Renewer(store)

    @contextmanager
    def lock(
        self, name: str | None = None, ttl: float = 30.0, blocking_timeout: float | None = 0.0, *,
        uses: Uses | None = None,
    ) -> Iterator[Lease]:  # fmt: skip
        """Hold `name`, and units of quotas. Inside a job of that key, give the job's own lease.

        Raises Locked if the lane was not free within `blocking_timeout` seconds (0: no wait, None: no bound),
        WouldDeadlock if the calling code would wait for itself, and LeaseLost at the end if the lease was lost.
        """
        key, units = check_lock(name, ttl, blocking_timeout, uses, self.store.settings.quota_unknown == "open")
        if own := own_lease(key):
            with self.lock(None, ttl, blocking_timeout, uses=uses) if units else nullcontext():
                yield own
            return
        wait = math.inf if blocking_timeout is None else blocking_timeout
        lease, since = self._take(key, units, ttl, wait)
        pid = os.getpid()
        self._renewer.add(lease, ttl, since)
        hold(lease)
        released = True
        try:
            yield lease
        finally:
            lease.given_up = True
            if os.getpid() == pid:  # in a process that the block forked, nothing is released
                self._renewer.drop(lease)
                released = self._give_up(lease)
        if not released:
            raise LeaseLost(lease.key, lease.fence)

    def _take(self, key: str, uses: str, ttl: float, wait: float) -> tuple[Lease, float]:
        """Take the lock, in one round trip where the lane is free. Also return the last moment before it was ours."""
        deadline = time.monotonic() + wait
        while True:
            request = _LockRequest(f"lock-{os.urandom(16).hex()}", os.urandom(16).hex(), key, uses, ttl, wait > 0)
            try:
                fence, since, holder = self._request(request, deadline)
            except BaseException:
                with suppress(*_AWAY):
                    self._release(request.id, request.token)
                raise
            if fence:
                return Lease(key or _shown(uses), request.id, request.token, int(fence), self.lanes.holds), since
            if holder is not None:
                break
        if not holder:
            self._release(request.id, request.token)
        raise self._locked(key, uses, holder or None)

    def _request(self, request: _LockRequest, deadline: float) -> tuple[str | None, float, str | None]:
        """Request the lock once, and wait for it until `deadline` if the request `waits`. Returns (fence, since, None)
        for a lock that was taken; `since`: a time before the lease began (`time.monotonic()`).

        Otherwise returns (None, since, holder). `holder`: the id of the job or lock that has the lane; "" if none is
        known; None if the place in line was lost, since Redis lost its data or this process was stopped for too long.
        """
        since = time.monotonic()
        lifetime = milliseconds(self.store.settings.max_lifetime)
        others = [part for pair in holders() for part in pair]
        when_busy = "queue" if request.waits else "skip"
        ttl = milliseconds(request.ttl)
        take = lock_take.of(request.id, request.key, when_busy, request.token, ttl, lifetime, request.uses, *others)
        reply = self.store.insist(lambda: take.run(self.store), deadline)
        self.lanes.check_quotas(reply)
        outcome, _, other, fence = reply
        if outcome == b"deadlock":
            raise would_deadlock(other.decode())
        if fence:
            return fence.decode(), since, None
        if not request.waits:
            held = outcome == b"skipped" and other.decode() != request.id  # else no holder is known: a paused lane
            return None, since, other.decode() if held else ""
        return self._turn(request.id, deadline)

    def _turn(self, job_id: str, deadline: float) -> tuple[str | None, float, str | None]:
        """Wait for the lane until `deadline`, even if Redis is unreachable for a time. Returns what `_request` does."""
        with self.store.pop(self.store.key("turn", job_id)) as pop:
            while True:
                since = time.monotonic()
                try:
                    pop(max(0.01, min(_POLL, deadline - time.monotonic())))
                    since = time.monotonic()
                    state, fence = lock_wait(self.store, job_id)
                except _AWAY:
                    if since >= deadline:
                        raise
                    self.store.pause(0.05)
                    continue
                if state == "deadlock":
                    raise would_deadlock(fence)
                if state == "running":
                    return fence, since, None
                if since >= deadline:
                    return None, since, ""
                if state != "waiting":
                    return None, since, None if state in ("", "failed") else ""

    def _give_up(self, lease: Lease) -> bool:
        """Release the lock of a lease; False if the lease was lost before. If Redis does not answer, the lock ends when
        its lease runs out.
        """
        try:
            return self._release(lease.job_id, lease.token)
        except (StoreUnavailable, StoreRefused) as error:
            logger.warning("lock %s: cannot be released, and ends when its lease runs out: %s", lease.key, error)
            return not lease.lost.is_set()

    def _release(self, job_id: str, token: str) -> bool:
        release = partial(lock_release, self.store, job_id, token)
        return self.store.insist(release, time.monotonic() + 2.0) == "released"

    def _locked(self, key: str, uses: str, holder: str | None) -> Locked:
        """Make the error of a lock that was not ours in time: it names the holder of the lane, or the quotas."""
        if holder:
            return Locked(key, holder)
        error = self.lanes.locked(key) if key else None
        if error is None or (uses and error.holder is None):
            return Locked(key or _shown(uses), None, f"too few units of {_shown(uses)} are free")
        return error
