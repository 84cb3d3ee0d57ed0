"""Grabs: one of many processes wins an instance of a key and works on it; the others learn who won, and the result.

`locks/leases.py` renews the winner's lease, as for locks. `grabs/reader.py` describes how Redis keeps an instance.
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
from typing import Literal, NamedTuple, ParamSpec, Self, TypeVar, cast

from kombu.utils.json import dumps

from coordinator.core.grabs.reader import all_of, listening, read
from coordinator.core.jobs.instances import GrabRecord, Instance, State, Winner, checked, lane_of, parse_instance
from coordinator.core.jobs.validation import GRABS, checks_arguments, count, one_of, shown, span, text
from coordinator.core.locks.leases import Lease, Renewer, held, hold, would_deadlock
from coordinator.core.store.client import Store
from coordinator.core.store.step import Call
from coordinator.core.store.steps import grab_end, grab_release, grab_take, lock_release
from coordinator.core.store.times import milliseconds
from coordinator.core.store.values import Json
from coordinator.errors import InvalidJob, LeaseLost, StoreRefused, StoreUnavailable, WaitTimeout

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
Named = Instance | Callable[..., Instance]
OnLosing = Literal["incomplete", "complete", "wait"]
_LOSER: dict[OnLosing, State] = {"incomplete": "incomplete", "complete": "complete", "wait": "waiting"}
_INSIST = 2.0  # seconds for which a step is repeated if the reply to it was lost
_POLL = 1.0  # seconds between two reads of the instance by a waiting process


class Terms(NamedTuple):
    """The options of a grab, as `Coordinator.grab` explains them. `ttl`, `keep`: seconds."""

    ttl: float
    on_losing: OnLosing
    keep: float
    attempts: int

    def check(self) -> None:
        one_of("on_losing", self.on_losing, tuple(_LOSER))
        if span("ttl", self.ttl, 0.2) > span("keep", self.keep):
            raise InvalidJob(f"keep ({self.keep} s) must not be less than ttl ({self.ttl} s)")
        count("attempts", self.attempts, 1)


@dataclass(frozen=True)
class Grabber:
    """Creates the grabs of this process. `holds(job_id, token)`: True while Redis says that the token owns the lane.
    `node()`: the name of the worker of this process, "" outside workers. `in_task()`: True inside a Celery task.
    """

    store: Store
    renewer: Renewer
    holds: Callable[[str, str], bool]
    node: Callable[[], str]
    in_task: Callable[[], bool]

    def grab(self, key: object, instance: object, identifier: str, terms: Terms) -> Grab:
        """Try once to win the instance, and return the grab, won or lost. Raises InvalidJob, StoreUnavailable,
        StoreRefused.
        """
        terms.check()
        grab = Grab(self, checked("key", key), checked("instance", instance), checked("identifier", identifier), terms)
        grab._take()
        return grab

    def release(self, key: str, instance: object, attempt: int | None, act: str) -> str | None:
        """Take an instance from its winner for an operator, as `Coordinator.release_grab` explains. Returns the
        identifier of the winner; None if there was nothing to release. `act`: JSON of the operator's act.
        """
        lane = lane_of(checked("key", key), checked("instance", instance))
        about = grab_release(self.store, lane, attempt, act)
        return Winner(**json.loads(about)).identifier if about else None

    def all(self, key: str | None, most: int, after: str) -> list[GrabRecord]:
        """Return a page of the instances of `key`, or of all keys for None, as `Coordinator.grabs` explains. `after`: a
        `GrabRecord.cursor`, "" for the first page.
        """
        named = None if key is None else checked("key", key)
        return all_of(self.store, named, count("most", most, 1), after and text("after", after))

    def listening(self, key: str, instance: str) -> AbstractContextManager[Callable[[float], None]]:
        """Return a context manager that gives a function which waits for the end of an instance, up to a number of
        seconds (`reader.listening`).
        """
        return listening(self.store, key, instance)


def run_once(
    grabber: Callable[[], Grabber], key: Named, instance: Named, identifier: str, terms: Terms
) -> Callable[[Callable[P, object]], Callable[P, Grab | dict[str, object]]]:
    """Decorate a function to run only in a call that wins an instance, as `Coordinator.run_once` explains. `grabber`
    returns the Grabber at each call, since it may not exist yet when the function is decorated.
    """
    terms.check()

    def decorated(function: Callable[P, object]) -> Callable[P, Grab | dict[str, object]]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Grab | dict[str, object]:
            called_key, called_instance = (
                named(*args, **kwargs) if callable(named) else named for named in (key, instance)
            )
            own_name, maker = identifier or f"{socket.gethostname()}:{os.getpid()}", grabber()
            with maker.grab(called_key, called_instance, own_name, terms) as grab:
                if grab.won:
                    grab.complete(cast(Json, function(*args, **kwargs)))
            return grab.as_dict() if maker.in_task() else grab

        return call

    return decorated


@lru_cache(maxsize=100)
def _winner_json(winner: Winner) -> str:
    return json.dumps(winner._asdict())


@checks_arguments
class Grab:
    """The attempt of one process to work on an instance. `won`: True if this process has won, and is to do the work.

    `state`: running, complete or failed for the winner; complete, incomplete, waiting or failed for a loser. `winner`:
    the process that won, which may be this one. `fence`: for a winner to pass with each write. `attempt`: the number of
    the winner, counted from 1. `result`: the JSON that the winner passed to `complete`; `reason`: why the work failed.

    As a context manager: on entering, a loser with `on_losing="wait"` waits; on leaving, a winner completes the work,
    or fails it after an exception.
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
        """Raise LeaseLost if this process has lost the instance, StoreUnavailable if Redis does not answer."""
        self._ours().check()

    def complete(self, result: Json = None) -> None:
        """End the work with success: no process can win the instance again for `keep` seconds. `result`: a JSON value,
        which the losers can read.

        Raises LeaseLost if another process has taken over or may do so, and StoreUnavailable if Redis may not have
        stored the end.
        """
        self._end("complete", result)
        self.result = result

    def fail(self, reason: Json = None) -> None:
        """End the work as failed: a waiting process or the next grab takes over, until the work has failed `attempts`
        times. `reason`: a JSON value, which the losers can read. Raises what `complete` raises.
        """
        self._end("failed", reason)
        self.reason = reason

    def wait(self, timeout: float | None = None) -> State:
        """Wait until the winner has ended, and return how: `complete`, `failed` or `abandoned`; or `stopped` after a
        call of `stop()`. Raises WaitTimeout after `timeout` seconds (None: never).

        With `on_losing="wait"`, one of the waiting processes takes over an instance that was abandoned, or that has
        failed less often than `attempts`: then `won` is true there, and the others go on waiting. Redis may be
        unreachable for a time meanwhile.
        """
        if self.won:
            return self.state
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._grabber.listening(self.key, self.instance) as listen:
            while (end := self._poll_end()) is None:
                left = _POLL if deadline is None else min(_POLL, deadline - time.monotonic())
                if left <= 0:
                    raise WaitTimeout(f"{self.key} {self.instance}", "running")
                if self._stopped:
                    return "stopped"
                listen(left)
        return end

    def as_dict(self) -> dict[str, object]:
        """Return the grab as a dict {won, state, result, winner}, which JSON can encode, for example as the result of a
        Celery task.
        """
        about: dict[str, object] = {"won": self.won, "state": self.state, "result": self.result}
        return about | {"winner": self.winner and self.winner._asdict()}

    def stop(self) -> None:
        """Make a call of `wait` in another thread return within a second."""
        self._stopped = True

    def __enter__(self) -> Self:
        if not self.won and self._terms.on_losing == "wait":
            if any(lease.key == lane_of(self.key, self.instance) for lease in held()):
                raise would_deadlock(f"this process holds {self.key} {self.instance} already")
            self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is None or self._pid != os.getpid():  # lost, or a fork of the winner
            return
        try:
            if error is None:
                self.complete(self.result)
            else:
                self.fail(f"{type(error).__name__}: {error}")
        except (LeaseLost, StoreUnavailable, StoreRefused) as problem:
            if error is None:
                raise
            logger.warning("grab %s %s: cannot store that the work failed: %s", self.key, self.instance, problem)
        finally:
            self._let_go()  # if the end could not be stored, the lease runs out, and another process takes over

    def _poll_end(self) -> State | None:
        """Read how the winner ended, and try to take over where `wait` allows it. None if the winner is still running,
        or Redis does not answer.
        """
        try:
            seen = read(self._grabber.store, self.key, self.instance)
            if seen.state in ("abandoned", "failed", "") and self._terms.on_losing == "wait":
                before, seen = seen, self._take()
                if self.won:
                    return before.state or "abandoned"
        except (StoreUnavailable, StoreRefused, InvalidJob) as error:  # InvalidJob: the instance's lane is not free yet
            logger.debug("grab %s %s: %s", self.key, self.instance, error)
            return None
        if seen.state == "running":
            return None
        self._note_winner(seen)
        return seen.state or "abandoned"

    def _take(self) -> GrabRecord:
        """Try to win the instance, and return its record. If this process has won, set `won` and renew the lease from
        now on.
        """
        grabber = self._grabber
        winner = Winner(self.identifier, socket.gethostname(), os.getpid(), grabber.node())
        about = _winner_json(winner)
        lane, lifetime = lane_of(self.key, self.instance), milliseconds(grabber.store.settings.max_lifetime)
        for _ in range(10):
            job_id, token, since = f"{GRABS}{os.urandom(12).hex()}", os.urandom(16).hex(), time.monotonic()
            ttl, keep = milliseconds(self._terms.ttl), milliseconds(self._terms.keep)
            take = grab_take.of(lane, job_id, token, ttl, lifetime, keep, self._terms.attempts, about)
            try:
                reply = self._insist(take)
            except BaseException:
                with suppress(StoreUnavailable, StoreRefused):
                    lock_release(grabber.store, job_id, token)
                raise
            if reply[0] != b"busy":
                break
            grabber.store.pause(0.05)  # until a sweep has ended the lease of a dead winner
        else:
            raise InvalidJob(f"grab {self.key} {self.instance}: the lane is paused, or held by an ordinary job or lock")
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
        """Copy winner, state and result from the record `seen`, after this process has lost. Log each winner once."""
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
        if self._lease is None and self.state == "running":  # this process had won, and has lost the instance
            raise LeaseLost(f"{self.key} {self.instance}", self.fence)
        if self._lease is None:
            raise InvalidJob(f"grab {self.key} {self.instance}: this process has not won; the state is {self.state}")
        return self._lease

    def _end(self, state: State, value: Json) -> None:
        lease = self._ours()
        try:
            text = dumps(value)
        except (TypeError, ValueError) as error:
            raise InvalidJob(f"grab {self.key} {self.instance}: {shown(value)} has no JSON form: {error}") from error
        keep = milliseconds(self._terms.keep)
        reply = self._insist(grab_end.of(lease.key, lease.job_id, lease.token, state, keep, text))
        self._let_go()
        if reply != "ended":
            lease.lost.set()
            with suppress(StoreUnavailable, StoreRefused):  # the lane may still be held, even if the record is gone
                lock_release(self._grabber.store, lease.job_id, lease.token)
            raise LeaseLost(f"{self.key} {self.instance}", lease.fence)
        self.state = state

    def _let_go(self) -> None:
        """Stop renewing the winner's lease, if this process has one."""
        if self._lease is not None:
            self._grabber.renewer.drop(self._lease)
            self._lease.given_up = True
            self._lease = None

    def _insist(self, call: Call[R]) -> R:
        store = self._grabber.store
        return store.insist(lambda: call.run(store), time.monotonic() + _INSIST)
