"""Fetch the system metadata of many objects at once. A bounded number is in progress; each is tried a few times."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Self

from tasks.catalog.catalog import Failed, Fetched, Wanted
from tasks.member_node.client import BUSY_TRIES, Busy, MemberNode, MemberNodeError, MemberTimedOut
from tasks.settings import Settings

AHEAD = 4
"""How many objects are in progress for each connection."""


class Stalled(MemberNodeError):
    """The member times out for one object after the other. The run ends, so that other members get its place."""


class Fetcher:
    """Serves one run. `first_error` is that of the first listed object whose last try failed.

    `first_asked_error`: that of the first object that was asked for by its pid.
    """

    def __init__(self, client: MemberNode, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._pool = ThreadPoolExecutor(settings.connections, thread_name_prefix=client.member.identifier)
        self._arrived: SimpleQueue[tuple[Wanted, Fetched | Exception]] = SimpleQueue()
        self._in_a_row = 0
        self._timeouts = 0  # in a row
        self.first_error: MemberNodeError | None = None
        self.first_asked_error: MemberNodeError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def fetch(self, wanted: Iterable[Wanted]) -> Iterator[Fetched | Failed]:
        """Yield the results as they arrive.

        Raises MemberNodeError where the member as a whole fails, rather than one of its objects. Raises Stalled, which
        is a MemberNodeError, after `give_up_after` objects in a row that took too long.
        """
        in_progress = 0
        for one in wanted:
            if in_progress == AHEAD * self._settings.connections:
                yield self._next()
                in_progress -= 1
            self._pool.submit(self._work, one)
            in_progress += 1
        for _ in range(in_progress):
            yield self._next()

    def _work(self, wanted: Wanted) -> None:
        """Runs in a thread of the pool, and always delivers a result or an error."""
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
        if self._timeouts >= self._settings.give_up_after:
            member = self._client.member
            raise Stalled(f"took too long for {self._timeouts} objects in a row", member.identifier, member.base_url)
        wanted, found = self._arrive()
        if isinstance(found, Fetched):
            self._in_a_row = self._timeouts = 0
            return found
        if not isinstance(found, MemberNodeError):
            raise found
        self._in_a_row += 1
        self._timeouts = self._timeouts + 1 if isinstance(found, MemberTimedOut | Busy) else 0
        if self._in_a_row % self._settings.give_up_after == 0:
            self._client.ping()
        if wanted.listed is None:
            self.first_asked_error = self.first_asked_error or found
        else:
            self.first_error = self.first_error or found
        return Failed(wanted, str(found), found.status)

    def _arrive(self) -> tuple[Wanted, Fetched | Exception]:
        settings = self._settings
        patience = settings.tries * BUSY_TRIES * (settings.request_timeout + settings.retry_after_limit)
        try:
            return self._arrived.get(timeout=patience)
        except Empty:
            member = self._client.member
            raise MemberTimedOut(f"did not answer within {patience:g} s", member.identifier, member.base_url) from None
