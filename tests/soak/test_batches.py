"""Batches, their events and components, in the long form: on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from tasks.batches import ItemConditions, Items
from tasks.batches.schema import events
from tasks.settings import Settings
from tests.fleet.shared.test_components import run
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.tasks.batches.conftest import Store, finished_at_once, wrongly_counted

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

MANY = 1_000


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = request.getfixturevalue("database") if request.param == "postgres" else ""
    return Settings(data_dir=tmp_path / "data", database_url=url)


@pytest.fixture
def batches(settings: Settings) -> Iterator[Store]:
    items = Items(settings)
    yield Store(items)
    assert not wrongly_counted(items)
    items.engine.dispose()


def test_two_components_finish_each_of_1000_items_at_once_and_store_2000_events(batches: Store) -> None:
    names = [f"B{number}-RT1" for number in range(MANY)]
    batches.fill(names)
    finished_at_once(batches.items, names, "A", "B")
    with batches.items.engine.connect() as connection:
        pairs = select(events.c.item, events.c.type).distinct().subquery()
        assert connection.execute(select(func.count()).select_from(events)).scalar() == 2 * MANY
        assert connection.execute(select(func.count()).select_from(pairs)).scalar() == 2 * MANY
    assert len(batches.items.query(ItemConditions(past=["A", "B"]), limit=2 * MANY).items) == MANY


def test_a_component_works_on_all_of_300_items_but_the_broken_one(
    batches: Store, settings: Settings, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    names = [f"B{number}-RT1" for number in range(300)]
    batches.fill(names, "Data_Received")
    with batches.items.engine.begin() as connection:
        connection.execute(text("UPDATE items SET modified = 'yesterday' WHERE item = 'B150-RT1'"))
    with Fleet(redis_server, prefix, tmp_path) as fleet:
        fleet.environ |= {"TASKS_DATABASE_URL": settings.database, "TEST_LIMIT": "60"}
        fleet.worker("one", 4, app="press")
        press = fleet.app("press")
        while run(press).result != {"component": "Checker", "outcome": "nothing to do"}:
            pass
        assert "the item 'B150-RT1' cannot be read" in fleet.logs()
    page = batches.items.query(ItemConditions(past=["Checked"]), limit=1000)
    assert {one.id for one in page.items} == {*names} - {"B150-RT1"}
    assert batches.items.query(ItemConditions(future=["Checked"])).broken == ("B150-RT1",)
