"""Grabs: one process among many works on an instance of a key, once. The others learn who does, and how it ends.

`locks/leases.py` renews the winner's lease, as it does for locks. `grabs/reader.py` describes the instance itself.
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
from typing import Any, Literal, NamedTuple, ParamSpec, Self, cast

from kombu.utils.json import dumps

from coordinator.errors import InvalidJob, LeaseLost, StoreRefused, StoreUnavailable, WaitTimeout
from coordinator.grabs.reader import all_of, listening, look
from coordinator.jobs.instances import GrabRecord, Instance, State, Winner, checked, lane_of, parse_instance
from coordinator.jobs.validation import GRABS, checks_arguments, count, one_of, shown, span, text
from coordinator.locks.leases import Lease, Renewer, held, hold, would_deadlock
from coordinator.store.client import Store
from coordinator.store.times import milliseconds
from coordinator.store.values import Json

logger = logging.getLogger(__name__)

P = ParamSpec("P")
Named = Instance | Callable[..., Instance]
OnLosing = Literal["incomplete", "complete", "wait"]
_LOSER: dict[OnLosing, State] = {"incomplete": "incomplete", "complete": "complete", "wait": "waiting"}
_INSIST = 2.0  # seconds for which a step is repeated when its reply was lost
_POLL = 1.0


class Terms(NamedTuple):
    """On which terms a process grabs: see `Coordinator.grab`."""

    ttl: float
    on_losing: OnLosing
    keep: float
    attempts: int

    def check(self) -> None:
        one_of("on_losing", self.on_losing, tuple(_LOSER))
        if span("ttl", self.ttl, 0.2) > span("keep", self.keep):
            raise InvalidJob(f"keep is not below ttl, not {self.keep} and {self.ttl}")
        count("attempts", self.attempts, 1)


@dataclass(frozen=True)
class Grabber:
    """Makes the grabs of this process. `node`: the name of its worker, or "". `in_task`: True inside a task."""

    store: Store
    renewer: Renewer
    holds: Callable[[str, str], bool]
    node: Callable[[], str]
    in_task: Callable[[], bool]

    def grab(self, key: object, instance: object, identifier: str, terms: Terms) -> Grab:
        """One attempt to win the instance. Raises InvalidJob, StoreUnavailable, StoreRefused."""
        terms.check()
        grab = Grab(self, checked("key", key), checked("instance", instance), checked("identifier", identifier), terms)
        grab._take()
        return grab

    def release(self, key: str, instance: object, attempt: int | None, act: str) -> str | None:
        """See `Coordinator.release_grab`."""
        lane = lane_of(checked("key", key), checked("instance", instance))
        about = self.store.step("grab_release", lane, "" if attempt is None else attempt, act)
        return Winner(**json.loads(about)).identifier if about else None

    def all(self, key: str | None, most: int, after: str) -> list[GrabRecord]:
        """See `Coordinator.grabs`."""
        named = None if key is None else checked("key", key)
        return all_of(self.store, named, count("most", most, 1), after and text("after", after))

    def listening(self, key: str, instance: str) -> AbstractContextManager[Callable[[float], None]]:
        """See `records.listening`."""
        return listening(self.store, key, instance)


def run_once(
    grabber: Callable[[], Grabber], key: Named, instance: Named, identifier: str, terms: Terms
) -> Callable[[Callable[P, object]], Callable[P, Grab | dict[str, object]]]:
    """See `Coordinator.run_once`. Each call calls `grabber`, since functions are decorated at import."""
    terms.check()

    def decorated(function: Callable[P, object]) -> Callable[P, Grab | dict[str, object]]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Grab | dict[str, object]:
            what, which = (part(*args, **kwargs) if callable(part) else part for part in (key, instance))
            who, mine = identifier or f"{socket.gethostname()}:{os.getpid()}", grabber()
            with mine.grab(what, which, who, terms) as grab:
                if grab.won:
                    grab.complete(cast(Json, function(*args, **kwargs)))
            return grab.as_dict() if mine.in_task() else grab

        return call

    return decorated


@lru_cache(maxsize=100)
def _winner_json(winner: Winner) -> str:
    return json.dumps(winner._asdict())


@checks_arguments
class Grab:
    """The part of one process in an instance. `won`: this process works on it; then `fence` goes with its writes.

    `state`: running, complete or failed for the winner; complete, incomplete, waiting or failed for a loser. `winner`:
    the process that won, also where that is this one. `result`: the JSON that the winner passed to `complete`;
    `reason`: why the work failed.

    As a context manager, it completes on leaving, fails on an exception, and with `on_losing="wait"` waits on entering.
    """

    def __init__(self, grabber: Grabber, key: str, instance: str, identifier: str, terms: Terms) -> None:
        self.key, self.instance, self.identifier = key, instance, identifier
        self.won = False
        self.state: State = ""
        self.winner: Winner | None = None
        self.attempt = self.fence = 0
        self.result: Json = None
        self.reason: Json = None
        self._grabber, self._terms = grabber, terms
        self._lease: Lease | None = None
        self._pid = os.getpid()
        self._stopped = False

    def check(self) -> None:
        """Raise LeaseLost if the instance is no longer ours, StoreUnavailable if nobody can say."""
        self._ours().check()

    def complete(self, result: Json = None) -> None:
        """End the work well: nobody grabs the instance again within `keep`. `result`: JSON, for the others.

        Raises LeaseLost where another process has taken over or may, and StoreUnavailable where Redis did not store it.
        """
        self._end("complete", result)
        self.result = result

    def fail(self, reason: Json = None) -> None:
        """End the work as failed: a waiting process or the next to grab takes over, until its `attempts` are used up.

        Raises what `complete` raises.
        """
        self._end("failed", reason)
        self.reason = reason

    def wait(self, timeout: float | None = None) -> State:
        """Wait for the winner's end: `complete`, `failed` or `abandoned`; `stopped` after `stop()`.

        With `on_losing="wait"` one of the waiting processes takes over an instance that was abandoned, or failed fewer
        times than its `attempts`: then `won` is true. The others go on waiting. Redis may be away meanwhile. Raises
        WaitTimeout after `timeout` seconds.
        """
        if self.won:
            return self.state
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._grabber.listening(self.key, self.instance) as listen:
            while (end := self._look_for_end()) is None:
                left = _POLL if deadline is None else min(_POLL, deadline - time.monotonic())
                if left <= 0:
                    raise WaitTimeout(f"{self.key} {self.instance}", "running")
                if self._stopped:
                    return "stopped"
                listen(left)
        return end

    def as_dict(self) -> dict[str, object]:
        """The grab as JSON: the result of a Celery task that grabs."""
        about: dict[str, object] = {"won": self.won, "state": self.state, "result": self.result}
        return about | {"winner": self.winner and self.winner._asdict()}

    def stop(self) -> None:
        """Make a `wait` in another thread return, within a second."""
        self._stopped = True

    def __enter__(self) -> Self:
        if not self.won and self._terms.on_losing == "wait":
            if any(lease.key == lane_of(self.key, self.instance) for lease in held()):
                raise would_deadlock(f"{self.key} {self.instance} is its own already")
            self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is None or self._pid != os.getpid():  # a forked child does not own the grab
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

    def _look_for_end(self) -> State | None:
        """Read how the winner ended, and take over if this process may; None while it runs or nobody can say."""
        try:
            seen = look(self._grabber.store, self.key, self.instance)
            if seen.state in ("abandoned", "failed", "") and self._terms.on_losing == "wait":
                before, seen = seen, self._take()
                if self.won:
                    return before.state or "abandoned"
        except (StoreUnavailable, StoreRefused, InvalidJob) as error:  # InvalidJob: its lane is not free yet
            logger.debug("grab %s %s: %s", self.key, self.instance, error)
            return None
        if seen.state == "running":
            return None
        self._note_winner(seen)
        return seen.state or "abandoned"

    def _take(self) -> GrabRecord:
        """Compete for the instance, and return it as it is now; `won` is true if this process won it."""
        grabber = self._grabber
        winner = Winner(self.identifier, socket.gethostname(), os.getpid(), grabber.node())
        about = _winner_json(winner)
        lane, lifetime = lane_of(self.key, self.instance), milliseconds(grabber.store.settings.max_lifetime)
        for _ in range(10):
            job_id, token, since = f"{GRABS}{os.urandom(12).hex()}", os.urandom(16).hex(), time.monotonic()
            args = (lane, job_id, token, milliseconds(self._terms.ttl), lifetime)
            try:
                reply = self._insist("grab_take", *args, milliseconds(self._terms.keep), self._terms.attempts, about)
            except BaseException:
                with suppress(StoreUnavailable, StoreRefused):
                    grabber.store.step("lock_release", job_id, token)
                raise
            if reply[0] != b"busy":
                break
            grabber.store.pause(0.05)  # somebody is just ending the lease of a process that is gone
        else:
            raise InvalidJob(f"the lane of the grab {self.key} {self.instance} is held by something else, or paused")
        seen = parse_instance(self.key, self.instance, reply)
        if reply[0] != b"won":
            self._note_winner(seen)
            return seen
        self.won, self.state, self.winner = True, "running", winner
        self.fence, self.attempt = seen.fence, seen.attempt
        self._lease = Lease(lane, job_id, token, self.fence, grabber.holds)
        grabber.renewer.add(self._lease, self._terms.ttl, since)
        hold(self._lease)
        return seen

    def _note_winner(self, seen: GrabRecord) -> None:
        """Note the winner that this process lost to, and log it once."""
        if seen.winner and seen.winner != self.winner:
            winner, place = seen.winner.identifier, seen.winner.place
            logger.info("grab %s %s: %s lost to %s (%s)", self.key, self.instance, self.identifier, winner, place)
        self.winner, self.attempt, self.fence = seen.winner or self.winner, seen.attempt, seen.fence
        if seen.state == "complete":
            self.state, self.result = "complete", seen.value
        elif seen.state == "failed":
            self.state, self.reason = "failed", seen.value
        else:
            self.state = _LOSER[self._terms.on_losing]

    def _ours(self) -> Lease:
        if self._lease is None and self.state == "running":  # it was ours
            raise LeaseLost(f"{self.key} {self.instance}", self.fence)
        if self._lease is None:
            raise InvalidJob(f"grab {self.key} {self.instance}: it is not ours; its state is {self.state}")
        return self._lease

    def _end(self, state: State, value: Json) -> None:
        lease = self._ours()
        try:
            text = dumps(value)
        except (TypeError, ValueError) as error:
            raise InvalidJob(f"grab {self.key} {self.instance}: {shown(value)} has no JSON form: {error}") from error
        reply = self._insist(
            "grab_end", lease.key, lease.job_id, lease.token, state, milliseconds(self._terms.keep), text
        )
        self._let_go()
        if reply != b"ended":
            lease.lost.set()
            with suppress(StoreUnavailable, StoreRefused):  # the lane may still be ours, where the record is gone
                self._grabber.store.step("lock_release", lease.job_id, lease.token)
            raise LeaseLost(f"{self.key} {self.instance}", lease.fence)
        self.state = state

    def _let_go(self) -> None:
        """Renew the lease no longer."""
        if self._lease is not None:
            self._grabber.renewer.drop(self._lease)
            self._lease.given_up = True
            self._lease = None

    def _insist(self, name: str, *args: str | int) -> Any:
        store = self._grabber.store
        return store.insist(lambda: store.step(name, *args), time.monotonic() + _INSIST)
