"""A submit that waits for the commit of a SQLAlchemy session: once where it commits, never where it is rolled back."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from coordinator import Coordinator, InvalidJob, StoreUnavailable
from tests.coordinator.conftest import ClientAt
from tests.harness.proxy import Proxy

pytestmark = pytest.mark.usefixtures("node")  # it has the task
SHIP = {"task": "shop.work", "args": [1]}


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        session.execute(text("create table orders (id integer primary key)"))
        session.commit()
        yield session
    engine.dispose()


def jobs(coordinator: Coordinator) -> list[str]:
    return list(coordinator.lane("order").jobs)


def put(session: Session, number: int) -> None:
    session.execute(text(f"insert into orders values ({number})"))


def test_a_job_is_submitted_when_the_transaction_commits_and_once(coordinator: Coordinator, session: Session) -> None:
    put(session, 1)
    first = coordinator.submit_on_commit("order", SHIP, session=session)
    second = coordinator.submit_on_commit("order", SHIP, session=session, job_id="mine")
    assert jobs(coordinator) == []
    session.commit()
    assert jobs(coordinator) == [first, second] == [first, "mine"]
    put(session, 2)
    session.commit()
    assert jobs(coordinator) == [first, "mine"]


def test_before_the_first_statement_the_next_transaction_counts(coordinator: Coordinator, session: Session) -> None:
    first = coordinator.submit_on_commit("order", SHIP, session=session)
    put(session, 1)
    session.commit()
    assert jobs(coordinator) == [first]


@pytest.mark.parametrize("end", ["rollback", "close", "fails"])
def test_nothing_is_submitted_without_a_commit(coordinator: Coordinator, session: Session, end: str) -> None:
    put(session, 1)
    coordinator.submit_on_commit("order", SHIP, session=session)
    if end == "fails":
        with pytest.raises(IntegrityError):
            put(session, 1)
        session.rollback()
    else:
        getattr(session, end)()
    put(session, 2)
    session.commit()
    assert jobs(coordinator) == []


def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it(coordinator: Coordinator, session: Session) -> None:
    ids = []
    with session.begin():
        ids.append(coordinator.submit_on_commit("order", SHIP, session=session))
        with session.begin_nested():
            ids.append(coordinator.submit_on_commit("order", SHIP, session=session))
            with session.begin_nested():
                ids.append(coordinator.submit_on_commit("order", SHIP, session=session))
        with session.begin_nested() as undone:
            coordinator.submit_on_commit("order", SHIP, session=session)
            with session.begin_nested():
                coordinator.submit_on_commit("order", SHIP, session=session)
            undone.rollback()
        put(session, 1)
        assert jobs(coordinator) == []
    assert jobs(coordinator) == ids


def test_an_async_session_counts_as_its_own(coordinator: Coordinator, session: Session) -> None:
    class Asynchronous:
        sync_session = session

    async def commit() -> str:
        put(session, 1)
        job_id = coordinator.submit_on_commit("order", SHIP, session=Asynchronous())
        session.commit()
        return job_id

    assert [asyncio.run(commit())] == jobs(coordinator)


def test_a_scoped_session_counts_as_the_one_of_this_thread(coordinator: Coordinator, session: Session) -> None:
    scoped = scoped_session(lambda: session)  # type: ignore[arg-type]
    job_id = coordinator.submit_on_commit("order", SHIP, session=scoped)
    assert jobs(coordinator) == []
    scoped.commit()
    assert [job_id] == jobs(coordinator)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"session": "x"}, "a Session of SQLAlchemy, not 'x'"),
        ({"session": sessionmaker()}, r"a Session of SQLAlchemy, not sessionmaker"),
        ({"session": Session(), "using": "default"}, "name one of them"),
    ],
)
def test_an_object_that_is_no_session_is_named(coordinator: Coordinator, options: Any, says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        coordinator.submit_on_commit("order", SHIP, **options)


def test_a_wrong_job_is_refused_at_the_call(coordinator: Coordinator, session: Session) -> None:
    with pytest.raises(InvalidJob, match="priority"):
        coordinator.submit_on_commit("order", SHIP, session=session, priority=1000)


def test_a_redis_that_is_away_fails_the_commit_s_caller_under_the_job_s_id_and_the_session_goes_on(
    coordinator: Coordinator, session: Session, proxy: Proxy, client_at: ClientAt
) -> None:
    away: Any = client_at(proxy.url(0), timeout=0.5)
    put(session, 1)
    job_id = away.submit_on_commit("order", SHIP, session=session)
    other = away.submit_on_commit("order", SHIP, session=session)
    proxy.swallow()
    with pytest.raises(StoreUnavailable) as caught:
        session.commit()
    proxy.heal()
    assert caught.value.job_ids == (job_id, other)
    put(session, 2)
    session.commit()
    assert session.execute(text("select count(*) from orders")).scalar() == 2
    for one in (job_id, other):
        assert coordinator.submit("order", SHIP, job_id=one).accepted
    assert sorted(jobs(coordinator)) == sorted([job_id, other])
