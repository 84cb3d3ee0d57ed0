"""A grab: one process among many works on an instance of a key, once. The others learn who does, and how it ends.

`leases.py` renews the winner's lease, as it does for locks. The instance itself is described in `grabs.py`.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, cast

from kombu.utils.json import dumps

from coordinator.errors import InvalidJob, LeaseLost, StoreRefused, StoreUnavailable, WaitTimeout
from coordinator.jobs.instances import Grabbed, Instance, State, Winner, checked, found, lane_of
from coordinator.jobs.validation import GRABS
from coordinator.lanes.grabs import all_of, listening, look
from coordinator.lanes.leases import Lease, Renewer, holding
from coordinator.store.client import Store
from coordinator.store.times import milliseconds
from coordinator.store.values import Json

logger = logging.getLogger(__name__)

P = ParamSpec("P")
Named = Instance | Callable[..., Instance]
OnLosing = Literal["incomplete", "complete", "wait"]
_LOSER: dict[OnLosing, State] = {"incomplete": "incomplete", "complete": "complete", "wait": "waiting"}
_INSIST = 2.0  # seconds for which a lost reply is asked for again
_POLL = 1.0


@dataclass(frozen=True)
class Grabber:
    """Makes the grabs of this process. `node`: the name of its worker, or "". `in_task`: is the caller a task?"""

    store: Store
    renewer: Renewer
    holds: Callable[[str, str], bool]
    node: Callable[[], str]
    in_task: Callable[[], bool]

    def grab(
        self, key: object, instance: object, identifier: str, *, ttl: float, on_losing: OnLosing, keep: float
    ) -> Grab:
        """One attempt to win the instance. Raises InvalidJob, StoreUnavailable, StoreRefused."""
        if on_losing not in _LOSER:
            raise InvalidJob(f"on_losing is one of {', '.join(_LOSER)}, not {on_losing!r}")
        if ttl < 0.2 or keep < ttl:
            raise InvalidJob(f"ttl is at least 0.2 s and keep not below ttl, not {ttl} and {keep}")
        names = checked("key", key), checked("instance", instance), checked("identifier", identifier)
        grab = Grab(self, *names, ttl=ttl, keep=keep, on_losing=on_losing)
        grab._take()
        return grab

    def all(self, key: str | None, most: int) -> list[Grabbed]:
        return all_of(self.store, key, most)

    def listening(self, key: str, instance: str) -> AbstractContextManager[Callable[[float], None]]:
        """See `grabs.listening`."""
        return listening(self.store, key, instance)


def grabbed(
    grabber: Callable[[], Grabber],
    key: Named,
    instance: Named,
    identifier: str,
    *,
    ttl: float,
    on_losing: OnLosing,
    keep: float,
) -> Callable[[Callable[P, object]], Callable[P, Grab | dict[str, object]]]:
    """See `Coordinator.grabbed`. `grabber`: asked for at each call, since a function is decorated at import."""

    def decorated(function: Callable[P, object]) -> Callable[P, Grab | dict[str, object]]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Grab | dict[str, object]:
            what, which = (one(*args, **kwargs) if callable(one) else one for one in (key, instance))
            who, mine = identifier or f"{socket.gethostname()}:{os.getpid()}", grabber()
            with mine.grab(what, which, who, ttl=ttl, on_losing=on_losing, keep=keep) as grab:
                if grab.won:
                    grab.complete(cast(Json, function(*args, **kwargs)))
            return grab.told() if mine.in_task() else grab

        return call

    return decorated


@lru_cache(maxsize=100)
def _told(winner: Winner) -> str:
    return json.dumps(winner._asdict())


class Grab:
    """One process's part in an instance. `won`: it is ours to work on; then `fence` goes with our writes.

    `state`: running, complete or failed for the winner; complete, incomplete, waiting or failed for a loser. `winner`:
    the process that won, also where that is this one. `result`: what the winner completed it with; `reason`: why it
    failed.

    As a context manager, it completes on leaving, fails on an exception, and with `on_losing="wait"` waits on entering.
    """

    def __init__(
        self,
        grabber: Grabber,
        key: str,
        instance: str,
        identifier: str,
        *,
        ttl: float,
        keep: float,
        on_losing: OnLosing,
    ) -> None:
        self.key, self.instance, self.identifier = key, instance, identifier
        self.won = False
        self.state: State = ""
        self.winner: Winner | None = None
        self.attempt = self.fence = 0
        self.result: Json = None
        self.reason: Json = None
        self._grabber, self._ttl, self._keep, self._on_losing = grabber, ttl, keep, on_losing
        self._lease: Lease | None = None
        self._pid = os.getpid()
        self._stopped = False

    def check(self) -> None:
        """Raises LeaseLost where the instance is no longer ours, StoreUnavailable where nobody can say."""
        self._ours().check()

    def complete(self, result: Json = None) -> None:
        """Say that the work is done: nobody grabs the instance again within `keep`. `result`: JSON, for the others.

        Raises LeaseLost where another has taken over or may, and StoreUnavailable where it could not be stored.
        """
        self._end("complete", result)
        self.result = result

    def fail(self, reason: Json = None) -> None:
        """Say that the work failed: the instance may be grabbed again. Raises as `complete`."""
        self._end("failed", reason)
        self.reason = reason

    def wait(self, timeout: float | None = None) -> State:
        """Wait for the winner's end: `complete`, `failed` or `abandoned`; `stopped` after `stop()`.

        With `on_losing="wait"` an abandoned instance is taken over by one of those who wait: then `won` is true. For
        the others the wait goes on. Redis may be away meanwhile. Raises WaitTimeout after so many seconds.
        """
        if self.won:
            return self.state
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._grabber.listening(self.key, self.instance) as listen:
            while (said := self._heard()) is None:
                left = _POLL if deadline is None else min(_POLL, deadline - time.monotonic())
                if left <= 0:
                    raise WaitTimeout(f"{self.key} {self.instance}", "running")
                if self._stopped:
                    return "stopped"
                listen(left)
        return said

    def told(self) -> dict[str, object]:
        """The grab as JSON: a Celery task that grabs gives it back."""
        about: dict[str, object] = {"won": self.won, "state": self.state, "result": self.result}
        return about | {"winner": self.winner and self.winner._asdict()}

    def stop(self) -> None:
        """End a wait of another thread, within a second."""
        self._stopped = True

    def __enter__(self) -> Self:
        if not self.won and self._on_losing == "wait":
            self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is None or self._pid != os.getpid():  # in a forked child it is not ours to end
            return
        try:
            if error is None:
                self.complete(self.result)
            else:
                self.fail(f"{type(error).__name__}: {error}")
        except (LeaseLost, StoreUnavailable, StoreRefused) as problem:
            if error is None:
                raise
            logger.warning("grab %s %s: its failure is not noted: %s", self.key, self.instance, problem)
        finally:
            self._let_go()  # where its end could not be stored, the lease ends, and another takes over

    def _heard(self) -> State | None:
        """The end of the winner, or None while it runs or nobody can say."""
        try:
            seen = look(self._grabber.store, self.key, self.instance)
            if seen.state in ("abandoned", "") and self._on_losing == "wait":
                self._take()
                if self.won:  # before anything else is asked: nobody would know of it where that fails
                    return "abandoned"
                seen = look(self._grabber.store, self.key, self.instance)
        except (StoreUnavailable, StoreRefused) as error:
            logger.debug("grab %s %s: %s", self.key, self.instance, error)
            return None
        if seen.state == "running":
            return None
        self._see(seen)
        return seen.state or "abandoned"

    def _take(self) -> None:
        grabber = self._grabber
        winner = Winner(self.identifier, socket.gethostname(), os.getpid(), grabber.node())
        about = _told(winner)
        lane, lifetime = lane_of(self.key, self.instance), milliseconds(grabber.store.settings.max_lifetime)
        for _ in range(10):
            job_id, token, since = f"{GRABS}{os.urandom(12).hex()}", os.urandom(16).hex(), time.monotonic()
            args = (lane, job_id, token, milliseconds(self._ttl), lifetime)
            try:
                reply = self._insist("grab_take", *args, milliseconds(self._keep), about)
            except BaseException:
                with suppress(StoreUnavailable, StoreRefused):
                    grabber.store.step("lock_release", job_id, token)
                raise
            if reply[0] != b"busy":
                break
            grabber.store.pause(0.05)  # the lease of one that is gone is just being ended
        else:
            raise InvalidJob(f"the lane of the grab {self.key} {self.instance} is held by something else, or paused")
        if reply[0] != b"won":
            self._see(found(self.key, self.instance, reply))
            return
        self.won, self.state, self.winner = True, "running", winner
        self.fence, self.attempt = int(reply[1]), int(reply[2])
        self._lease = Lease(lane, job_id, token, self.fence, grabber.holds)
        grabber.renewer.add(self._lease, self._ttl, since)
        holding.set((*holding.get(), self._lease))

    def _see(self, seen: Grabbed) -> None:
        """Note the winner, for a loser, and log it once."""
        if seen.winner and seen.winner != self.winner:
            winner, place = seen.winner.identifier, seen.winner.place
            logger.info("grab %s %s: %s lost to %s (%s)", self.key, self.instance, self.identifier, winner, place)
        self.winner, self.attempt, self.fence = seen.winner or self.winner, seen.attempt, seen.fence
        if seen.state == "complete":
            self.state, self.result = "complete", seen.value
        elif seen.state == "failed":
            self.state, self.reason = "failed", seen.value
        else:
            self.state = _LOSER[self._on_losing]

    def _ours(self) -> Lease:
        if self._lease is None:
            raise InvalidJob(f"grab {self.key} {self.instance}: it is not ours; its state is {self.state}")
        return self._lease

    def _end(self, state: State, value: Json) -> None:
        lease, text = self._ours(), "null" if value is None else dumps(value)
        told = self._insist("grab_end", lease.key, lease.job_id, lease.token, state, milliseconds(self._keep), text)
        self._let_go()
        if told != b"ended":
            lease.lost.set()
            with suppress(StoreUnavailable, StoreRefused):  # the lane may still be ours, where the record is gone
                self._grabber.store.step("lock_release", lease.job_id, lease.token)
            raise LeaseLost(f"{self.key} {self.instance}", lease.fence)
        self.state = state

    def _let_go(self) -> None:
        """Renew the lease no longer."""
        if self._lease is not None:
            self._grabber.renewer.drop(self._lease)
            holding.set(tuple(one for one in holding.get() if one is not self._lease))
            self._lease = None

    def _insist(self, name: str, *args: str | int) -> Any:
        store = self._grabber.store
        return store.insist(lambda: store.step(name, *args), time.monotonic() + _INSIST)
