"""Fetches the system metadata of many objects of a member in parallel, with a few tries for each object."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import NamedTuple, Self

from tasks.catalog.catalog import Failed, Fetched, ObjectToFetch
from tasks.harvest.patience import INCONCLUSIVE, MemberPatience
from tasks.member_node.client import (
    NOT_THERE,
    AsksToWait,
    Busy,
    MemberNode,
    MemberNodeError,
    MemberTimedOut,
    MemberUnreachable,
)
from tasks.settings import Settings

AHEAD = 4
"""The most objects, for each connection, that are in the pool at a time."""
COMEBACKS = 2
"""How often an object that failed while the member was silent is fetched again: the object may cause the silence."""
A_WHILE = 1.0


class Arrival(NamedTuple):
    """The result of all tries to fetch an object: its metadata, or the last error.

    `began`, `at`: when the first try began and when the last try ended, by `time.monotonic`.
    """

    wanted: ObjectToFetch
    result: Fetched | Exception
    began: float
    at: float


class Undecided(NamedTuple):
    """A failure to fetch an object, which may be the fault of the object or of the member. `at`: `time.monotonic`."""

    wanted: ObjectToFetch
    error: MemberNodeError
    at: float


class Stalled(MemberNodeError):
    """The member took too long for `give_up_after` objects in a row: the run ends, so that others get its slot."""


class Fetcher:
    """Fetches the metadata of objects, for one run of a sync, with `settings.connections` threads.

    `first_error`: the error of the first failed object from the listing; None: there is none. `first_requested_error`:
    of the first failed object that a user has requested by its pid.
    """

    def __init__(self, client: MemberNode, settings: Settings, patience: MemberPatience) -> None:
        self._client, self._settings, self._patience = client, settings, patience
        self._pool = ThreadPoolExecutor(settings.connections, thread_name_prefix=client.member.identifier)
        self._arrived: SimpleQueue[Arrival] = SimpleQueue()
        self._arrived_at = 0.0
        self._back_at = 0.0  # when the member last answered again after a silence, by `time.monotonic`
        self._again: list[ObjectToFetch] = []
        self._comebacks: Counter[ObjectToFetch] = Counter()
        self._undecided: list[Undecided] = []
        self._in_a_row = 0
        self._timeouts = 0  # objects in a row that took too long
        self._asks: AsksToWait | None = None  # the member wants no further request now
        self.first_error: MemberNodeError | None = None
        self.first_requested_error: MemberNodeError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def fetch(self, targets: Iterable[ObjectToFetch]) -> Iterator[Fetched | Failed | None]:
        """Yield the result of each object when it arrives, and None after A_WHILE seconds without a result.

        An object that failed because the member fell silent is fetched again. Raises MemberNodeError where the member
        itself fails, rather than one of its objects; Stalled after `give_up_after` objects in a row that took too long.
        """
        source, in_progress, self._arrived_at = iter(targets), 0, time.monotonic()
        while True:
            while in_progress < AHEAD * self._settings.connections and (item := self._next(source)):
                self._pool.submit(self._work, item)
                in_progress += 1
            if not in_progress and not self._undecided:
                return
            if not in_progress:
                yield from self._judge()
            elif (arrived := self._arrive()) is None:
                yield None
            else:
                in_progress -= 1
                yield from self._handle(arrived)

    def _next(self, source: Iterator[ObjectToFetch]) -> ObjectToFetch | None:
        return self._again.pop() if self._again else next(source, None)

    def _work(self, target: ObjectToFetch) -> None:
        """Fetch an object, in a thread of the pool, and put its metadata or the error into the queue of results."""
        began = time.monotonic()
        try:
            result: Fetched | Exception = self._asks or self._try(target)
        except AsksToWait as error:
            self._asks = result = error
        except Exception as error:
            result = error
        self._arrived.put(Arrival(target, result, began, time.monotonic()))

    def _try(self, target: ObjectToFetch) -> Fetched:
        pause = self._settings.try_pause
        for _ in range(self._settings.tries - 1):
            try:
                return Fetched(target, self._client.system_metadata(target.pid))
            except MemberNodeError as error:
                if error.status in NOT_THERE or isinstance(error, AsksToWait):
                    raise
                self._client.pause(pause)
                pause *= 2
        return Fetched(target, self._client.system_metadata(target.pid))

    def _handle(self, arrived: Arrival) -> Iterator[Fetched | Failed]:
        target, result, began, at = arrived
        if isinstance(result, Fetched):
            self._patience.delivered()
            self._in_a_row = self._timeouts = 0
            # If the request began before an object failed, the answer does not prove that the member was up then.
            yield from self._settle((MemberUnreachable,), before=began)
            yield result
            return
        if not isinstance(result, MemberNodeError) or isinstance(result, AsksToWait):
            raise result
        self._undecided.append(Undecided(target, result, at))
        if at <= self._back_at:
            yield from self._settle(INCONCLUSIVE)
            return
        self._in_a_row += 1
        self._timeouts = self._timeouts + 1 if isinstance(result, MemberTimedOut | Busy) else 0
        if self._in_a_row % self._settings.give_up_after == 0:
            yield from self._judge()
        if self._timeouts >= self._settings.give_up_after:
            yield from self._settle()
            member = self._client.member
            raise Stalled(f"took too long for {self._timeouts} objects in a row", member.identifier, member.base_url)

    def _judge(self) -> Iterator[Failed]:
        """Decide whether the latest failures are faults of the objects. They are not if the member does not answer.

        Waits for a silent member; objects that failed in the silence are fetched again. Yields the others as failed.
        """
        doubtful = [failure.error for failure in self._undecided if isinstance(failure.error, INCONCLUSIVE)]
        if doubtful and self._patience.outlast(doubtful[-1]):
            self._in_a_row, self._timeouts, self._back_at = 0, 0, time.monotonic()
            yield from self._settle(INCONCLUSIVE)
        else:
            yield from self._settle()

    def _settle(self, excused: tuple[type[MemberNodeError], ...] = (), before: float = math.inf) -> Iterator[Failed]:
        """Decide what becomes of the objects that failed before the instant `before` (of `time.monotonic`).

        Objects whose error is one of `excused` are fetched again, COMEBACKS times at most; the others are yielded.
        """
        settled = [failure for failure in self._undecided if failure.at < before]
        self._undecided = [failure for failure in self._undecided if failure.at >= before]
        for target, error, _ in settled:
            if isinstance(error, excused) and self._comebacks[target] < COMEBACKS:
                self._comebacks[target] += 1
                self._again.append(target)
                continue
            if target.listed is None:
                self.first_requested_error = self.first_requested_error or error
            else:
                self.first_error = self.first_error or error
            yield Failed(target, str(error), error.status)

    def _arrive(self) -> Arrival | None:
        """The next result from the pool; None: there was none for A_WHILE seconds.

        Raises MemberTimedOut where there was none for longer than all tries of an object may take.
        """
        settings = self._settings
        longest = settings.tries * settings.request_timeout
        try:
            arrived = self._arrived.get(timeout=min(A_WHILE, longest))
        except Empty:
            if time.monotonic() - self._arrived_at > longest:
                member = self._client.member
                message = f"did not answer within {longest:g} s"
                raise MemberTimedOut(message, member.identifier, member.base_url) from None
            return None
        self._arrived_at = time.monotonic()
        return arrived
