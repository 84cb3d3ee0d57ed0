"""Submits a job when a database transaction commits: one of Django, or of a session of SQLAlchemy.

    coordinator.submit_on_commit("order/42", ship.s(42), session=session)

The call checks the job and returns the id of the job, which is submitted once, after the outermost transaction has
committed. A rollback drops the job; so does the rollback of a savepoint around the call. If the process dies between
the commit and the submit, the job is lost, unless the transaction wrote it into an outbox (`coordinator/outbox`). This
module can be imported without Django and SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar, cast

from coordinator.errors import InvalidJob

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session

    from coordinator.core.jobs.request import JobRequest
    from coordinator.core.lanes.client import LaneClient

AnySession: TypeAlias = "Session | AsyncSession | scoped_session[Session] | async_scoped_session[AsyncSession]"

_NAME = "coordinator_on_commit"  # key in `Session.info` under which a session keeps its OnCommit objects
T = TypeVar("T")


class Outbox(Protocol):
    """What a submit, and who looks for a job, asks an outbox."""

    def write(self, request: JobRequest, session: AnySession | None) -> None: ...

    def says_of(self, job_id: str) -> str: ...


def on_commit(core: LaneClient, request: JobRequest, session: AnySession | None, using: str | None) -> str:
    """Submit `request` when the transaction of `session` commits, or Django's of the database `using` if `session` is
    None. Returns the id of the job. `Coordinator.submit_on_commit` says more.
    """
    if session is None:
        django_on_commit()(partial(core.submit, request), using=using)
    else:
        plain = plain_session(session, using)
        OnCommit.of(plain, core.submit_many).add(plain, request)
    return request.id


def django_on_commit() -> Callable[..., None]:
    try:
        return cast("Callable[..., None]", import_module("django.db.transaction").on_commit)
    except ModuleNotFoundError as error:
        if error.name != "django":
            raise
        raise InvalidJob(
            "submit_on_commit needs a session of SQLAlchemy (session=…), or Django, which is not installed"
        ) from error


def plain_session(session: object, using: str | None = None) -> Session:
    """Return the plain `Session` behind `session`: that of this thread or asyncio task for a scoped session, the
    synchronous one for an AsyncSession. Raises InvalidJob for anything else, and if `using` is set, too.
    """
    if using is not None:
        raise InvalidJob("session= is for SQLAlchemy and using= is for Django: name one of them")
    own = session() if hasattr(session, "registry") and callable(session) else session
    plain = getattr(own, "sync_session", own)
    if not isinstance(plain, import_module("sqlalchemy.orm").Session):
        raise InvalidJob(f"session must be a Session of SQLAlchemy, not {session!r}")
    return cast("Session", plain)


class OnCommit(Generic[T]):
    """The things that wait for the commit of a session, each with the transaction or savepoint that it belongs to.
    `act`: is called with those whose transaction has committed.
    """

    def __init__(self, session: Session, act: Callable[[list[T]], object]) -> None:
        self._act = act
        self._waiting: list[tuple[SessionTransaction | None, T]] = []
        self._committed: SessionTransaction | None = None  # the transaction or savepoint that has just committed
        listen = import_module("sqlalchemy.event").listen
        listen(session, "after_commit", self._commits)
        listen(session, "after_transaction_end", self._ends)

    @classmethod
    def of(cls, session: Session, act: Callable[[list[T]], object]) -> OnCommit[T]:
        by_act: dict[Callable[[list[T]], object], OnCommit[T]] = session.info.setdefault(_NAME, {})
        if act not in by_act:
            by_act[act] = cls(session, act)
        return by_act[act]

    def add(self, session: Session, thing: T) -> None:
        self._waiting.append((_innermost(session), thing))

    def _commits(self, session: Session) -> None:
        # SQLAlchemy calls this for the release of a savepoint, too: `_ends` finds out whether the outermost has ended.
        self._committed = _innermost(session)

    def _ends(self, session: Session, ended: SessionTransaction) -> None:
        """Handle the end of the transaction or savepoint `ended`: act on its things if the outermost transaction has
        committed; after the release of a savepoint, let them wait for the enclosing transaction; else drop them.

        SQLAlchemy has finished its own work when it sends this event, so an error raised here leaves the session
        usable.
        """
        outermost = ended.parent is None
        mine = [thing for part_of, thing in self._waiting if part_of is ended or (part_of is None and outermost)]
        self._waiting = [] if outermost else [waiting for waiting in self._waiting if waiting[0] is not ended]
        if self._committed is not ended:
            return
        self._committed = None
        if outermost:
            self._act(mine)
            return
        for thing in mine:
            self.add(session, thing)


def _innermost(session: Session) -> SessionTransaction | None:
    """Return the current savepoint of a session, else its transaction. None if no transaction has begun: a thing then
    belongs to the next one.
    """
    return session.get_nested_transaction() or session.get_transaction()
