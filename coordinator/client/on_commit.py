"""A submit that waits for the commit of a database transaction: of Django, or of a session of SQLAlchemy.

The job is checked and has its id at the call. It is submitted once, when the outermost transaction has committed. A
rollback drops it, also that of a savepoint around the call. Neither Django nor SQLAlchemy need be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, cast

from coordinator.errors import InvalidJob

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session

    from coordinator.jobs.request import JobRequest
    from coordinator.lanes.client import LaneClient

AnySession: TypeAlias = "Session | AsyncSession | scoped_session[Session] | async_scoped_session[AsyncSession]"

_NAME = "coordinator_on_commit"  # in a session's `info`


def on_commit(core: LaneClient, request: JobRequest, session: AnySession | None, using: str | None) -> str:
    """See `Coordinator.submit_on_commit`."""
    if session is None:
        _django_on_commit()(partial(core.submit, request), using=using)
    else:
        plain = _plain(session, using)
        _OnCommit.of(plain, core).add(plain, request)
    return request.id


def _django_on_commit() -> Callable[..., None]:
    try:
        return cast("Callable[..., None]", import_module("django.db.transaction").on_commit)
    except ModuleNotFoundError as error:
        if error.name != "django":
            raise
        raise InvalidJob("name a session of SQLAlchemy (session=…): else Django counts, and is not here") from error


def _plain(session: object, using: str | None) -> Session:
    """The session itself: that of this thread or task, and the one under an AsyncSession."""
    if using is not None:
        raise InvalidJob("session= is of SQLAlchemy and using= is of Django: name one of them")
    own = session() if hasattr(session, "registry") and callable(session) else session
    plain = getattr(own, "sync_session", own)
    if not isinstance(plain, import_module("sqlalchemy.orm").Session):
        raise InvalidJob(f"session: a Session of SQLAlchemy, not {session!r}")
    return cast("Session", plain)


class _OnCommit:
    """The submits that wait for the commit of a session, each with the transaction or savepoint that it is part of."""

    def __init__(self, session: Session, core: LaneClient) -> None:
        self._core = core
        self._requests: list[tuple[SessionTransaction | None, JobRequest]] = []
        self._committed: SessionTransaction | None = None  # the transaction or savepoint that is about to end
        listen = import_module("sqlalchemy.event").listen
        listen(session, "after_commit", self._commits)
        listen(session, "after_transaction_end", self._ends)

    @classmethod
    def of(cls, session: Session, core: LaneClient) -> _OnCommit:
        by_core: dict[LaneClient, _OnCommit] = session.info.setdefault(_NAME, {})
        if core not in by_core:
            by_core[core] = cls(session, core)
        return by_core[core]

    def add(self, session: Session, request: JobRequest) -> None:
        self._requests.append((_innermost(session), request))

    def _commits(self, session: Session) -> None:
        """The release of a savepoint is a commit, too."""
        self._committed = _innermost(session)

    def _ends(self, session: Session, ended: SessionTransaction) -> None:
        """A savepoint that was released hands on what it has. When the outermost transaction ends, nothing is left to
        be closed, so an error here leaves the session in order.
        """
        outermost = ended.parent is None
        mine = [request for part_of, request in self._requests if part_of is ended or (part_of is None and outermost)]
        self._requests = [] if outermost else [waiting for waiting in self._requests if waiting[0] is not ended]
        if self._committed is not ended:
            return
        self._committed = None
        if outermost:
            self._core.submit_many(mine)
            return
        for request in mine:
            self.add(session, request)


def _innermost(session: Session) -> SessionTransaction | None:
    """The savepoint at work, else the transaction; None before it began: then the next one counts."""
    return session.get_nested_transaction() or session.get_transaction()
