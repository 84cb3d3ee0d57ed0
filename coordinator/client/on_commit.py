"""A submit that waits for the commit of a database transaction: of Django, or of a session of SQLAlchemy.

The job is checked and has its id at the call. It is submitted once, when the outermost transaction has committed. A
rollback drops it, also that of a savepoint around the call. Neither Django nor SQLAlchemy need be installed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, Unpack, cast

from coordinator.errors import InvalidJob
from coordinator.jobs.validation import checks_arguments

if TYPE_CHECKING:
    from coordinator.jobs.options import SubmitOptions
    from coordinator.jobs.request import JobRequest
    from coordinator.lanes.client import LaneClient

_NAME = "coordinator_on_commit"  # in a session's `info`


class Transaction(Protocol):
    """A transaction or savepoint of SQLAlchemy, as far as it is asked."""

    @property
    def parent(self) -> Transaction | None: ...


class SqlSession(Protocol):
    """A session of SQLAlchemy, as far as it is asked."""

    @property
    def info(self) -> dict[str, dict[LaneClient, _Waiting]]: ...

    def get_transaction(self) -> Transaction | None: ...

    def get_nested_transaction(self) -> Transaction | None: ...


class AsyncSession(Protocol):
    """SQLAlchemy's session for asyncio."""

    @property
    def sync_session(self) -> SqlSession: ...


class ScopedSession(Protocol):
    """A registry with a session for each thread or task, as Flask-SQLAlchemy's `db.session`."""

    @property
    def registry(self) -> object: ...

    def __call__(self) -> SqlSession | AsyncSession: ...


@checks_arguments
class OnCommit(ABC):
    """The part of a Coordinator that submits on commit."""

    @property
    @abstractmethod
    def _core(self) -> LaneClient: ...

    @abstractmethod
    def _request(
        self, keys: str | Sequence[str] | None, signature: Mapping[str, object], options: SubmitOptions
    ) -> JobRequest: ...

    def submit_on_commit(
        self, keys: str | Sequence[str] | None, signature: Mapping[str, object], *,
        session: SqlSession | AsyncSession | ScopedSession | None = None,
        using: str | None = None, **options: Unpack[SubmitOptions],
    ) -> str:  # fmt: skip
        """Submit the job once the current transaction commits, never where it is rolled back. Gives the job's id.

        `session`: of SQLAlchemy, also an AsyncSession or a scoped one. Without one, Django's transaction of the
        database `using` counts; outside any, the job is submitted at once. Raises InvalidJob at the call. An error of
        Redis comes out of the commit, which holds: ask again with its `job_ids`, or under the id that the call gave. A
        process that dies just after the commit submits nothing.
        """
        request = self._request(keys, signature, options)
        if session is None:
            _django_on_commit()(partial(self._core.submit, request), using=using)
        else:
            plain = _plain(session, using)
            _Waiting.of(plain, self._core).add(plain, request)
        return request.id


def _django_on_commit() -> Callable[..., None]:
    try:
        return cast("Callable[..., None]", import_module("django.db.transaction").on_commit)
    except ModuleNotFoundError as error:
        if error.name != "django":
            raise
        raise InvalidJob("name a session of SQLAlchemy (session=…): else Django counts, and is not here") from error


def _plain(session: object, using: str | None) -> SqlSession:
    """The session itself: that of this thread or task, and the one under an AsyncSession."""
    if using is not None:
        raise InvalidJob("session= is of SQLAlchemy and using= is of Django: name one of them")
    own = session() if hasattr(session, "registry") and callable(session) else session
    found = getattr(own, "sync_session", own)
    if not isinstance(found, import_module("sqlalchemy.orm").Session):
        raise InvalidJob(f"session: a Session of SQLAlchemy, not {session!r}")
    return cast("SqlSession", found)


class _Waiting:
    """The submits that wait for the commit of a session, each with the transaction or savepoint that it is part of."""

    def __init__(self, session: SqlSession, core: LaneClient) -> None:
        self._core = core
        self._requests: list[tuple[Transaction | None, JobRequest]] = []
        self._committed: Transaction | None = None  # the transaction or savepoint that is about to end
        listen = import_module("sqlalchemy.event").listen
        listen(session, "after_commit", self._commits)
        listen(session, "after_transaction_end", self._ends)

    @classmethod
    def of(cls, session: SqlSession, core: LaneClient) -> _Waiting:
        found: dict[LaneClient, _Waiting] = session.info.setdefault(_NAME, {})
        if core not in found:
            found[core] = cls(session, core)
        return found[core]

    def add(self, session: SqlSession, request: JobRequest) -> None:
        self._requests.append((_innermost(session), request))

    def _commits(self, session: SqlSession) -> None:
        """The release of a savepoint is a commit, too."""
        self._committed = _innermost(session)

    def _ends(self, session: SqlSession, ended: Transaction) -> None:
        """A savepoint that was released hands on what it has. When the outermost transaction ends, nothing is left to
        be closed, so an error here leaves the session in order.
        """
        outermost = ended.parent is None
        mine = [request for one, request in self._requests if one is ended or (one is None and outermost)]
        self._requests = [] if outermost else [found for found in self._requests if found[0] is not ended]
        if self._committed is not ended:
            return
        self._committed = None
        if outermost:
            self._core.submit_many(mine)
            return
        for request in mine:
            self.add(session, request)


def _innermost(session: SqlSession) -> Transaction | None:
    """The savepoint at work, else the transaction; None before it began: then the next one counts."""
    return session.get_nested_transaction() or session.get_transaction()
