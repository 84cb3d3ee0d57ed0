"""System metadata of many objects at once: a bounded number of them in hand, each tried a few times."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Self

from tasks.catalog import Failed, Fetched, Wanted
from tasks.membernode import BUSY_TRIES, Busy, MemberNode, MemberNodeError, TimedOut
from tasks.settings import Settings

AHEAD = 4
"""For each connection, how many objects are asked for before the first of them is looked at."""


class Stalled(MemberNodeError):
    """The member keeps us waiting for one object after the other: its place is for others until the next run."""


class Fetcher:
    """For one run. `first_error` is that of the first object that failed for good."""

    def __init__(self, client: MemberNode, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._pool = ThreadPoolExecutor(settings.connections, thread_name_prefix=client.member.identifier)
        self._arrived: SimpleQueue[tuple[Wanted, Fetched | Exception]] = SimpleQueue()
        self._in_a_row = 0
        self._waits = 0  # in a row, too
        self.first_error: MemberNodeError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def fetch(self, wanted: Iterable[Wanted]) -> Iterator[Fetched | Failed]:
        """In the order of arrival. Raises MemberNodeError where it is the member that fails, not an object of its, and
        Stalled, a kind of that, after `give_up_after` objects in a row that took too long."""
        in_hand = 0
        for one in wanted:
            if in_hand == AHEAD * self._settings.connections:
                yield self._next()
                in_hand -= 1
            self._pool.submit(self._work, one)
            in_hand += 1
        for _ in range(in_hand):
            yield self._next()

    def _work(self, wanted: Wanted) -> None:
        """In a thread of the pool; whatever happens, something arrives."""
        try:
            self._arrived.put((wanted, self._try(wanted)))
        except Exception as error:
            self._arrived.put((wanted, error))

    def _try(self, wanted: Wanted) -> Fetched:
        pause = self._settings.try_pause
        for _ in range(self._settings.tries - 1):
            try:
                return Fetched(wanted, self._client.system_metadata(wanted.pid))
            except MemberNodeError:
                self._client.pause(pause)
                pause *= 2
        return Fetched(wanted, self._client.system_metadata(wanted.pid))

    def _next(self) -> Fetched | Failed:
        if self._waits >= self._settings.give_up_after:
            member = self._client.member
            raise Stalled(f"kept us waiting for {self._waits} objects in a row", member.identifier, member.base_url)
        wanted, found = self._arrive()
        if isinstance(found, Fetched):
            self._in_a_row = self._waits = 0
            return found
        if not isinstance(found, MemberNodeError):
            raise found
        self._in_a_row += 1
        self._waits = self._waits + 1 if isinstance(found, TimedOut | Busy) else 0
        if self._in_a_row % self._settings.give_up_after == 0:
            self._client.ping()
        self.first_error = self.first_error or found
        return Failed(wanted, str(found), found.status)

    def _arrive(self) -> tuple[Wanted, Fetched | Exception]:
        settings = self._settings
        patience = settings.tries * BUSY_TRIES * (settings.request_timeout + settings.retry_after_limit)
        try:
            return self._arrived.get(timeout=patience)
        except Empty:
            member = self._client.member
            raise TimedOut(f"let {patience:g} s pass without a word", member.identifier, member.base_url) from None
