"""Fetches the system metadata of many objects in parallel: bounded in number, each with a few tries."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import NamedTuple, Self

from tasks.catalog.catalog import Failed, Fetched, ObjectToFetch
from tasks.harvest.patience import DOUBTFUL, MemberPatience
from tasks.member_node.client import (
    BUSY_TRIES,
    NOT_THERE,
    Busy,
    MemberNode,
    MemberNodeError,
    MemberTimedOut,
    MemberUnreachable,
)
from tasks.settings import Settings

AHEAD = 4
"""The number of objects in progress for each connection."""
COMEBACKS = 2
"""The most times that an object is fetched again after a silence: it may itself cause the silence."""
A_WHILE = 1.0


class Arrival(NamedTuple):
    """The end of an object's tries. `began`, `at`: when the first try began, and when the last one ended."""

    wanted: ObjectToFetch
    result: Fetched | Exception
    began: float
    at: float


class Doubted(NamedTuple):
    """A failure that may be the object's fault or the member's. `at`: when it happened."""

    wanted: ObjectToFetch
    error: MemberNodeError
    at: float


class Stalled(MemberNodeError):
    """The member times out for one object after the other. The run ends, so that other members get its slot."""


class Fetcher:
    """Fetches for one run. `first_error`: the error of the first listed object that failed.

    `first_asked_error`: the error of the first failed object that was requested by its pid.
    """

    def __init__(self, client: MemberNode, settings: Settings, patience: MemberPatience) -> None:
        self._client, self._settings, self._patience = client, settings, patience
        self._pool = ThreadPoolExecutor(settings.connections, thread_name_prefix=client.member.identifier)
        self._arrived: SimpleQueue[Arrival] = SimpleQueue()
        self._arrived_at = 0.0
        self._back_at = 0.0  # the member answered again after a silence
        self._again: list[ObjectToFetch] = []
        self._comebacks: Counter[ObjectToFetch] = Counter()
        self._doubted: list[Doubted] = []
        self._in_a_row = 0
        self._timeouts = 0  # in a row
        self.first_error: MemberNodeError | None = None
        self.first_asked_error: MemberNodeError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def fetch(self, targets: Iterable[ObjectToFetch]) -> Iterator[Fetched | Failed | None]:
        """Yield the results as they arrive, and None where nothing arrived for a while.

        An object that failed because the member fell silent is fetched again. Raises MemberNodeError where the member
        as a whole fails, rather than one of its objects. Raises Stalled, which is a MemberNodeError,
        after `give_up_after` objects in a row that took too long.
        """
        source, in_progress, self._arrived_at = iter(targets), 0, time.monotonic()
        while True:
            while in_progress < AHEAD * self._settings.connections and (item := self._next(source)):
                self._pool.submit(self._work, item)
                in_progress += 1
            if not in_progress and not self._doubted:
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
        """Runs in a thread of the pool, and always delivers a result or an error."""
        began = time.monotonic()
        try:
            result: Fetched | Exception = self._try(target)
        except Exception as error:
            result = error
        self._arrived.put(Arrival(target, result, began, time.monotonic()))

    def _try(self, target: ObjectToFetch) -> Fetched:
        pause = self._settings.try_pause
        for _ in range(self._settings.tries - 1):
            try:
                return Fetched(target, self._client.system_metadata(target.pid))
            except MemberNodeError as error:
                if error.status in NOT_THERE:
                    raise
                self._client.pause(pause)
                pause *= 2
        return Fetched(target, self._client.system_metadata(target.pid))

    def _handle(self, arrived: Arrival) -> Iterator[Fetched | Failed]:
        target, result, began, at = arrived
        if isinstance(result, Fetched):
            self._patience.delivered()
            self._in_a_row = self._timeouts = 0
            # An answer that was asked for before a failure does not prove that the member lived after it.
            yield from self._settle((MemberUnreachable,), before=began)
            yield result
            return
        if not isinstance(result, MemberNodeError):
            raise result
        self._doubted.append(Doubted(target, result, at))
        if at <= self._back_at:
            yield from self._settle(DOUBTFUL)
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
        """Decide whether the last failures are faults of the objects. Where the member was silent, they are not."""
        doubtful = [doubted.error for doubted in self._doubted if isinstance(doubted.error, DOUBTFUL)]
        if doubtful and self._patience.outlast(doubtful[-1]):
            self._in_a_row, self._timeouts, self._back_at = 0, 0, time.monotonic()
            yield from self._settle(DOUBTFUL)
        else:
            yield from self._settle()

    def _settle(self, excused: tuple[type[MemberNodeError], ...] = (), before: float = math.inf) -> Iterator[Failed]:
        """Decide on the failures before that instant.

        Fetch objects with an excused error again, each COMEBACKS times at most; yield the others as failed.
        """
        settled = [doubted for doubted in self._doubted if doubted.at < before]
        self._doubted = [doubted for doubted in self._doubted if doubted.at >= before]
        for target, error, _ in settled:
            if isinstance(error, excused) and self._comebacks[target] < COMEBACKS:
                self._comebacks[target] += 1
                self._again.append(target)
                continue
            if target.listed is None:
                self.first_asked_error = self.first_asked_error or error
            else:
                self.first_error = self.first_error or error
            yield Failed(target, str(error), error.status)

    def _arrive(self) -> Arrival | None:
        """The next result; None after A_WHILE. Raises MemberTimedOut after a silence longer than all tries may take."""
        settings = self._settings
        longest = settings.tries * BUSY_TRIES * (settings.request_timeout + settings.retry_after_limit)
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
