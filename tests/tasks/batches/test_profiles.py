"""Pages are found by the profiles of the items, also beside processes of a version that knows none."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from sqlite3 import Connection

from sqlalchemy import Engine, event, text

from tasks.batches import Items, Wanted, profiles
from tasks.batches.schema import BATCHES
from tasks.database import Group, open_database
from tasks.settings import Settings
from tests.tasks.batches.conftest import EVENT, ITEM, Store, wrongly_counted
from tests.tasks.conftest import IN_BOTH


def before(settings: Settings, folder: Path) -> Engine:
    """The database as the version before leaves it."""
    (folder / "first").mkdir()
    shutil.copy(BATCHES.migrations / "v0001_items.py", folder / "first")
    return open_database(settings.database, settings.host, Group("batches", folder / "first"))


def happen(engine: Engine, item: str, *kinds: str, revision: int = 1, removed: str | None = None) -> None:
    """Events as the version before stores them; `-A` is a failure."""
    with engine.begin() as connection:
        for kind in kinds:
            number = connection.execute(text("SELECT count(*) FROM events")).scalar()
            given = {"id": f"e{number}", "item": item, "type": kind.removeprefix("-"), "revision": revision}
            given |= {"success": not kind.startswith("-"), "removed": removed}
            connection.execute(text(EVENT), given)


def register(engine: Engine, *names: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(ITEM), [{"item": name} for name in names])


def found(store: Items, **wanted: Sequence[str]) -> list[str]:
    return [one.id for one in store.query(Wanted(**wanted)).items]


@IN_BOTH
def test_a_database_of_before_profiles_is_migrated_with_its_content(settings: Settings, tmp_path: Path) -> None:
    engine = before(settings, tmp_path)
    register(engine, "new", "done", "failed", "mended", "changed", "repaired")
    happen(engine, "done", "A", "B")
    happen(engine, "failed", "A", "-B")
    happen(engine, "mended", "-B", "B")
    happen(engine, "changed", "A")
    happen(engine, "repaired", "-B", removed="2024-05-15T09:00:00.000000Z")
    with engine.begin() as connection:
        connection.execute(text("UPDATE items SET revision = 2 WHERE item = 'changed'"))
    store = Items(settings)
    with store.engine.connect() as connection:
        assert not connection.execute(profiles.uncounted()).all()
    assert not wrongly_counted(store)
    assert [len(store.events(name, history=True)) for name in ("done", "mended", "repaired")] == [2, 2, 1]
    assert found(store, past=["B"]) == ["done", "mended"]
    assert found(store, past_failed=["B"]) == ["failed"]
    assert found(store, future=["B"]) == ["new", "changed", "repaired"]
    assert found(store, past=["A"], old=["A"]) == ["changed"]
    engine.dispose()
    store.engine.dispose()


@IN_BOTH
def test_what_a_process_of_the_version_before_does_is_seen_at_once(settings: Settings, tmp_path: Path) -> None:
    older = before(settings, tmp_path)
    register(older, "one", "two")
    store = Items(settings)
    register(older, "three")
    happen(older, "one", "A")
    happen(older, "three", "A")
    assert (found(store, past=["A"]), found(store, future=["A"])) == (["one", "three"], ["two"])
    assert store.count_the_rest() == 2
    with older.begin() as connection:
        connection.execute(text("UPDATE items SET revision = 2 WHERE item = 'three'"))
    assert found(store, past=["A"], old=["A"]) == ["three"]
    happen(older, "two", "-A")
    Store(store).happen("two", "B")
    assert found(store, past_failed=["A"], past=["B"]) == ["two"]
    assert (store.count_the_rest(), store.count_the_rest()) == (1, 0), "an append counted the second item"
    assert found(store, past=["A"], old=["A"]) == ["three"]
    assert not wrongly_counted(store)
    older.dispose()
    store.engine.dispose()


def test_a_page_costs_no_more_beside_ten_times_as_many_items(store: Store) -> None:
    """Counted in SQLite's own steps."""
    taken: list[None] = []

    def watched(dbapi: Connection, record: object) -> None:
        dbapi.set_progress_handler(lambda: taken.append(None), 100)

    def cost(wanted: Wanted) -> int:
        """Of two pages."""
        taken.clear()
        event.listen(store.items.engine, "connect", watched)
        store.items.query(wanted, store.items.query(wanted, limit=20).next, 20)
        event.remove(store.items.engine, "connect", watched)
        return len(taken)

    asked = [Wanted(["A"], future=["B"]), Wanted(past_failed=["A"]), Wanted(future=["C"]), Wanted(old=["A"])]
    store.add("last", "A")
    store.fill([f"B{number}-RT1" for number in range(100)], "A", "B")
    few = [cost(wanted) for wanted in asked]
    store.fill([f"C{number}-RT1" for number in range(900)], "A", "B")
    assert store.items.query(asked[0]).items[0].id == "last"
    assert all(many <= 2 * before for before, many in zip(few, map(cost, asked), strict=True))
