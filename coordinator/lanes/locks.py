"""A lock in plain code: a place in the lane whose runner is the calling process.

Its turn comes as any job's does: all that stand before it in the line, jobs included, are over first. The step that
admits it also takes it, with the token that the waiter chose: no moment lies between turn and taking. `leases.py`
renews what is held, and says when it is lost.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from coordinator.errors import InvalidJob, LeaseLost, Locked, StoreRefused, StoreUnavailable
from coordinator.jobs import validation
from coordinator.jobs.current import current_job
from coordinator.lanes.lanes import Lanes
from coordinator.lanes.leases import Lease, Renewer, holders, holding, would_deadlock
from coordinator.store.client import Store
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_AWAY = (StoreUnavailable, StoreRefused)


def check_lock(name: str, ttl: float, wait: float) -> str:
    """The key."""
    (key,) = validation.check_keys(name)
    if ttl < 0.2 or wait < 0:
        raise InvalidJob(f"lock {name!r}: ttl is at least 0.2 s and wait not below 0, not {ttl} and {wait}")
    return key


def own_lease(key: str) -> Lease | None:
    """The lease that the calling job has on this key already."""
    job = current_job()
    if job is None or key not in job.keys:
        return None
    return Lease(key, job.id, job.token, job.fence, lambda *_: job.holds())


class _Ask(NamedTuple):
    """One place in line that is asked for."""

    id: str
    token: str
    key: str
    ttl: float
    waits: bool


class Locks:
    def __init__(self, store: Store, lanes: Lanes, renewer: Renewer | None = None) -> None:
        self.store = store
        self.lanes = lanes
        self._renewer = renewer or Renewer(store)

    @contextmanager
    def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> Iterator[Lease]:
        """Hold `name`. Raises Locked when it is not ours within `wait` seconds, WouldDeadlock where it never can be,
        LeaseLost at the end when it was lost. Inside a job of that key: the job's own lease.
        """
        key = check_lock(name, ttl, wait)
        if own := own_lease(key):
            yield own
            return
        lease, since = self._take(key, ttl, wait)
        pid = os.getpid()
        self._renewer.add(lease, ttl, since)
        holding.set((*holding.get(), lease))
        released = True
        try:
            yield lease
        finally:
            holding.set(tuple(one for one in holding.get() if one is not lease))
            if os.getpid() == pid:  # in a forked child it is not ours to give up
                self._renewer.drop(lease)
                released = self._give_up(lease)
        if not released:
            raise LeaseLost(key, lease.fence)

    def _take(self, key: str, ttl: float, wait: float) -> tuple[Lease, float]:
        """One round trip where the lane is free. Also the latest moment at which it was surely not ours yet."""
        deadline = time.monotonic() + wait
        while True:
            asked = _Ask(f"lock-{os.urandom(16).hex()}", os.urandom(16).hex(), key, ttl, wait > 0)
            try:
                fence, since, holder = self._ask(asked, deadline)
            except BaseException:
                with suppress(*_AWAY):
                    self._release(asked.id, asked.token)
                raise
            if fence:
                return Lease(key, asked.id, asked.token, int(fence), self.lanes.holds), since
            if holder is not None:
                break
        if not holder:
            self._release(asked.id, asked.token)
        raise Locked(key, holder or self._holder(key))

    def _ask(self, asked: _Ask, deadline: float) -> tuple[bytes | None, float, str | None]:
        """The fence, and since when; without one the holder where that is known, '' where time is up, or None: the
        place in line was lost, with the end of a Redis or since this process stood still for too long.
        """
        since = time.monotonic()
        lifetime = milliseconds(self.store.settings.max_lifetime)
        others = [part for pair in holders() for part in pair]
        args = (asked.id, asked.key, "queue" if asked.waits else "skip", asked.token, milliseconds(asked.ttl), lifetime)
        outcome, _, other, fence = self.store.insist(lambda: self.store.step("lock_take", *args, *others), deadline)
        if outcome == b"deadlock":
            raise would_deadlock(other.decode())
        if fence:
            return fence, since, None
        if not asked.waits:
            return None, since, other.decode() if outcome == b"skipped" else ""
        return self._turn(asked.id, deadline)

    def _turn(self, job_id: str, deadline: float) -> tuple[bytes | None, float, str | None]:
        """Wait until Redis says that it is our turn, also while Redis is away for a time. As `_ask`."""
        with self.store.pop(self.store.key("turn", job_id)) as pop:
            while True:
                asked = time.monotonic()
                try:
                    pop(max(0.01, deadline - time.monotonic()))
                    asked = time.monotonic()
                    state, fence = self.store.step("lock_wait", job_id)
                except _AWAY:
                    if asked >= deadline:
                        raise
                    self.store.pause(0.05)
                    continue
                if state == b"deadlock":
                    raise would_deadlock(fence.decode())
                if state == b"running":
                    return fence, asked, None
                if asked >= deadline:
                    return None, asked, ""
                if state != b"waiting":
                    return None, asked, None if state in (b"", b"failed") else ""

    def _give_up(self, lease: Lease) -> bool:
        """Whether it was ours to the end. A Redis that is silent now undoes nothing that was done under it."""
        try:
            return self._release(lease.job_id, lease.token)
        except (StoreUnavailable, StoreRefused) as error:
            logger.warning("lock %s: not released, it ends with its lease: %s", lease.key, error)
            return not lease.lost.is_set()

    def _release(self, job_id: str, token: str) -> bool:
        ask = partial(self.store.step, "lock_release", job_id, token)
        state = self.store.insist(ask, time.monotonic() + 2.0)
        return bool(state == b"released")

    def _holder(self, key: str) -> str | None:
        return self.lanes.lane(key, 1).holder
