"""How a transaction writes into an outbox, and what is refused at the call."""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from coordinator import Backoff, Coordinator, InvalidJob, SettingsError, outbox_table
from coordinator.outbox.outbox import Outbox
from coordinator.outbox.rows import request_of, text_of
from coordinator.testing.inline import InlineJobs
from tests.coordinator.outbox.conftest import SHIP, Shop
from tests.harness import djangos
from tests.harness.hand_node import sketch
from tests.harness.waiting import wait_until


def test_an_async_session_writes_in_its_own_transaction(
    postgres: Engine, database: str, shop_in: Callable[..., Shop]
) -> None:
    shop = shop_in(postgres)

    async def write() -> str:
        engine = create_async_engine(database)
        async with AsyncSession(engine) as session:
            shop.coordinator.submit_on_commit("order", SHIP, session=session, outbox=True)
            await session.rollback()
            async with session.begin():
                job_id = shop.coordinator.submit_on_commit("order", SHIP, session=session, outbox=True)
        await engine.dispose()
        return job_id

    job_id = asyncio.run(write())
    shop.look()
    assert shop.jobs() == [job_id]


def test_a_job_in_a_row_is_the_one_that_a_submit_makes() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=9)
    options: dict[str, Any] = {
        "priority": 3, "not_before": soon, "retry_delay": Backoff(), "uses": {"api": 2}, "max_waiting": 5,
        "max_attempts": 3, "rollback": SHIP,
    }  # fmt: skip
    request = sketch(["a", "b ä"], **options)
    read = request_of(text_of(request))
    assert (read.id, read.keys, [*read.step_args()]) == (request.id, request.keys, [*request.step_args()])
    assert request_of(text_of(sketch([], uses="api"))).keys == ()


def test_a_wrong_job_is_refused_at_the_call_and_writes_nothing(shop: Shop) -> None:
    with Session(shop.engine) as session, session.begin():
        with pytest.raises(InvalidJob, match="priority"):
            shop.submit(session, priority=1000)
        with pytest.raises(InvalidJob, match=r"unknown task 'shop\.wrok'"):
            shop.coordinator.submit_on_commit("order", {"task": "shop.wrok"}, session=session, outbox=True)
    assert shop.left == 0


def test_an_outbox_that_nobody_declared_is_named_with_the_way_out(coordinator: Coordinator, sqlite: Engine) -> None:
    with Session(sqlite) as session:
        with pytest.raises(InvalidJob, match=r"declared: coordinator\.outbox\(table=…, engine=…\)"):
            coordinator.submit_on_commit("order", SHIP, session=session, outbox=True)
        with pytest.raises(InvalidJob, match="name one of them"):
            coordinator.submit_on_commit("order", SHIP, session=session, using="other", outbox=True)
    with pytest.raises(InvalidJob, match=r"coordinator\.outbox\(using='other'\)"):
        coordinator.submit_on_commit("order", SHIP, using="other", outbox=True)
    with pytest.raises(InvalidJob, match="outbox is True or False"):
        coordinator.submit_on_commit("order", SHIP, outbox="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"table": outbox_table(MetaData())}, "table=… and engine=…"),
        ({"using": "default", "engine": create_engine("sqlite://")}, "table=… and engine=…"),
        ({"table": "outbox", "engine": create_engine("sqlite://")}, r"outbox_table\(metadata\), not 'outbox'"),
        (
            {"table": outbox_table(MetaData()), "engine": create_async_engine("postgresql+psycopg://h/d")},
            "runs in a thread, not with <.*AsyncEngine",
        ),
    ],
)
def test_a_wrong_declaration_is_refused(given: Any, says: str, shop: Shop) -> None:
    with pytest.raises(SettingsError, match=says):
        shop.coordinator.outbox(**given)


def test_a_second_declaration_is_refused(shop: Shop) -> None:
    with pytest.raises(SettingsError, match="SQLAlchemy has one outbox"):
        shop.coordinator.outbox(table=outbox_table(MetaData()), engine=shop.engine)
    shop.coordinator.outbox()
    with pytest.raises(SettingsError, match="Django's database 'default' is declared already"):
        shop.coordinator.outbox(using="default")


def test_two_apps_share_a_table_and_each_has_its_own_rows(shop: Shop, shop_in: Callable[..., Shop]) -> None:
    other = shop_in(shop.engine)
    other.rows.app = "other"  # type: ignore[attr-defined]
    mine, theirs = shop.write(), other.write()
    assert [[row.job_id for row in one.rows.read(9)] for one in (shop, other)] == [[mine], [theirs]]


def test_where_jobs_run_in_the_submitting_thread_they_run_at_the_commit(
    shop: Shop, coordinator_jobs: Callable[[Coordinator], InlineJobs]
) -> None:
    jobs = coordinator_jobs(shop.coordinator)
    with Session(shop.engine) as session, session.begin():
        shop.submit(session)
        assert jobs.submitted == []
    assert [job.state for job in jobs.submitted] == ["succeeded"]
    assert shop.left == 0


def test_rows_that_no_relay_submits_are_a_finding(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.write()
    assert list(shop.box.findings()) == []
    now = time.time() + 31
    monkeypatch.setattr("coordinator.outbox.outbox.time.time", lambda: now)
    [found] = shop.box.findings()
    assert (found.code, "for 31 s" in found.message) == ("outbox.late", True)


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[list[str]]:
    """The names of two databases of Django, of which each has the table."""
    djangos.set_up()
    from django.db import connections

    names = [f"{tmp_path.name}-{number}" for number in range(2)]
    for name in names:
        at = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / name}
        connections.settings[name] = connections.settings["default"] | at
        with connections[name].schema_editor() as editor:
            editor.create_model(_model())
    yield names
    for name in names:
        connections[name].close()
        del connections.settings[name]


def _model() -> Any:
    from django.apps import apps

    return apps.get_model("coordinator", "OutboxRow")


def test_django_writes_into_the_database_of_its_transaction_and_each_has_its_relay(
    shop: Shop, databases: list[str]
) -> None:
    from django.db import transaction

    boxes: list[Outbox] = []
    for name in databases:
        shop.coordinator.outbox(using=name)
        boxes.append(shop.coordinator._outboxes[name])  # type: ignore[arg-type]
    relays: list[Any] = [make("one") for make in shop.coordinator._node_plugins[1:]]
    ids = []
    for name in databases:
        with transaction.atomic(using=name):
            ids.append(shop.coordinator.submit_on_commit(name, SHIP, using=name, outbox=True))
            with transaction.atomic(using=name):
                shop.coordinator.submit_on_commit(name, SHIP, using=name, outbox=True)
                transaction.set_rollback(True, using=name)
        with transaction.atomic(using=name):
            shop.coordinator.submit_on_commit(name, SHIP, using=name, outbox=True)
            transaction.set_rollback(True, using=name)
        ids.append(shop.coordinator.submit_on_commit(name, SHIP, using=name, outbox=True))  # without a transaction
    assert [[row.job_id for row in box.rows.read(9)] for box in boxes] == [ids[:2], ids[2:]]
    for relay in relays:
        relay.start()
    wait_until(lambda: not any(box.rows.read(9) for box in boxes))
    for relay in relays:
        relay.stop()
    assert [shop.jobs(name) for name in databases] == [ids[:2], ids[2:]]


def test_django_writes_into_a_transaction_that_the_app_ends_by_hand(shop: Shop, databases: list[str]) -> None:
    from django.db import transaction

    name = databases[0]
    shop.coordinator.outbox(using=name)
    transaction.set_autocommit(False, using=name)
    shop.coordinator.submit_on_commit("order", SHIP, using=name, outbox=True)
    transaction.rollback(using=name)
    job_id = shop.coordinator.submit_on_commit("order", SHIP, using=name, outbox=True)
    transaction.commit(using=name)
    transaction.set_autocommit(True, using=name)
    assert [row.job_id for row in shop.coordinator._outboxes[name].rows.read(9)] == [job_id]  # type: ignore[attr-defined]


def test_a_row_of_django_that_is_refused_is_named(shop: Shop, databases: list[str]) -> None:
    shop.coordinator.outbox(using=databases[0])
    shop.coordinator.submit_on_commit("order", SHIP, using=databases[0], outbox=True, uses="crane")
    relay: Any = shop.coordinator._node_plugins[1]("one")
    with shop.coordinator.lock(relay._key, 30) as lease:
        relay.look(lease)
    [found] = [one for one in shop.coordinator.doctor() if one.code.startswith("outbox")]
    assert found.code == "outbox.refused"
    assert found.fix.startswith("coordinator quota crane --concurrency N --why …, and it is submitted within seconds")
    assert "wait behind it, of 1 in all: nobody declared" in found.message
    assert f"of table coordinator_outbox of Django's database '{databases[0]}'" in found.fix


def test_django_without_its_app_or_settings_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    djangos.set_up()
    from django.apps import apps

    monkeypatch.delitem(apps.all_models, "coordinator")
    monkeypatch.setattr(apps, "app_configs", {})
    shop.coordinator.outbox()
    with pytest.raises(SettingsError, match=r"'coordinator\.django' in INSTALLED_APPS"):
        shop.coordinator.submit_on_commit("order", SHIP, outbox=True)
