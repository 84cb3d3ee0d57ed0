"""The tables of a database are brought up to date: by one of many, whole or not at all, and never backwards."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, create_engine, inspect, make_url, text
from sqlalchemy.exc import InternalError, OperationalError

from coordinator.core.store.client import until
from tasks.batches.schema import BATCHES
from tasks.batches.schema import metadata as batch_tables
from tasks.catalog.catalog import Catalog
from tasks.catalog.schema import CATALOG
from tasks.catalog.schema import metadata as catalog_tables
from tasks.database import Group, UnusableDatabase, database, identity, name_of, open_database
from tasks.database.migrate import configuration
from tasks.service import refuse_what_cannot_be_used
from tasks.settings import Settings
from tests.harness.proxy import Proxy
from tests.harness.waiting import within
from tests.harness.warm import Started, start
from tests.tasks.catalog.test_catalog import M
from tests.tasks.conftest import IN_BOTH

Opened = Callable[..., Engine]

FIRST = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "0001", None
def upgrade():
    op.create_table("crates", sa.Column("name", sa.Text))
    op.execute("INSERT INTO crates VALUES ('first')")
"""
SECOND = """
import os, signal
from pathlib import Path
from alembic import op
import sqlalchemy as sa
revision, down_revision = "0002", "0001"
def upgrade():
    op.add_column("crates", sa.Column("weight", sa.Integer))
    op.create_table("lids", sa.Column("name", sa.Text))
    op.execute("INSERT INTO crates VALUES ('second', 2)")
    if Path(__file__).with_name("die").exists():
        os.kill(os.getpid(), signal.SIGKILL)
"""
OPEN = (
    "import sys; from pathlib import Path; from tasks.database import Group, open_database\n"
    "open_database(sys.argv[1], 'cn1', Group('crates', Path(sys.argv[2])))"
)


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """Somebody else's tables, so far with one migration."""
    folder = tmp_path / "a folder: 100%"
    folder.mkdir()
    (folder / "v0001_crates.py").write_text(FIRST)
    return Group("crates", folder)


@pytest.fixture
def opened(settings: Settings) -> Iterator[Opened]:
    """Opens the test's database for a group, and closes at the end the connections that were kept."""
    engines: list[Engine] = []

    def open_for(group: Group, **given: bool) -> Engine:
        engines.append(open_database(settings.database, "cn1", group, **given))
        return engines[-1]

    yield open_for
    for engine in engines:
        engine.dispose()


def crates(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT name FROM crates")).scalars())


def opening(settings: Settings, group: Group) -> Started:
    return start(["-c", OPEN, settings.database, str(group.migrations)], stderr=PIPE)


@IN_BOTH
@pytest.mark.parametrize(("group", "metadata"), [(CATALOG, catalog_tables), (BATCHES, batch_tables)])
def test_migrations_leave_the_tables_that_the_code_wants(opened: Opened, group: Group, metadata: MetaData) -> None:
    with opened(group).connect() as connection:
        theirs = {"version_table": group.version_table, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=theirs)
        differences = compare_metadata(context, metadata)
        assert [one for one in differences if one[:1] != ("remove_table",) or one[1].name != "meta"] == []
        script = ScriptDirectory.from_config(configuration(connection, group))
    assert [one.revision for one in script.walk_revisions()][::-1] == group.versions()


@IN_BOTH
def test_of_many_that_start_at_once_one_migrates(settings: Settings, group: Group, opened: Opened) -> None:
    at_once = [opening(settings, group) for _ in range(3)]
    assert [process.communicate(timeout=60)[1] for process in at_once] == [""] * 3
    assert crates(opened(group)) == ["first"]


@IN_BOTH
def test_a_process_that_dies_within_a_migration_leaves_what_was_there(
    settings: Settings, group: Group, opened: Opened
) -> None:
    engine = opened(group)
    (group.migrations / "v0002_lids.py").write_text(SECOND)
    (group.migrations / "die").touch()
    dying = opening(settings, group)
    dying.communicate(timeout=60)
    assert dying.returncode == -signal.SIGKILL
    assert crates(engine) == ["first"]
    assert not inspect(engine).has_table("lids")
    assert [column["name"] for column in inspect(engine).get_columns("crates")] == ["name"]
    (group.migrations / "die").unlink()
    assert crates(opened(group)) == ["first", "second"]
    assert inspect(engine).has_table("lids")


@IN_BOTH
def test_a_database_that_is_up_to_date_is_opened_though_others_hold_its_locks(
    settings: Settings, catalog: Catalog
) -> None:
    with catalog.engine.begin() as connection:
        lock = f"SELECT pg_advisory_xact_lock({database.ADVISORY_LOCK})"
        connection.exec_driver_sql("BEGIN IMMEDIATE" if catalog.engine.dialect.name == "sqlite" else lock)
        with within(20):
            assert Catalog(settings).objects(M) == []


@IN_BOTH
def test_groups_of_tables_share_a_database_and_know_nothing_of_each_other(
    settings: Settings, group: Group, opened: Opened, catalog: Catalog
) -> None:
    assert crates(opened(group)) == ["first"]
    (group.migrations / "v0002_lids.py").write_text(SECOND)
    opened(group)
    assert Catalog(settings).objects(M) == []


@IN_BOTH
def test_a_newer_database_is_refused_with_its_maker_and_the_way_out(
    group: Group, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group.migrations / "v0002_lids.py").write_text(SECOND)
    monkeypatch.setattr(database, "VERSION", "7.8.9")
    opened(group)
    monkeypatch.undo()
    (group.migrations / "v0002_lids.py").unlink()
    with pytest.raises(UnusableDatabase) as refused:
        opened(group)
    said = str(refused.value)
    assert "tables of the crates have version 0002, which celery-coordinator 7.8.9 made" in said
    assert "knows versions up to 0001. Install the version that made them" in said
    assert crates(opened(group, may_be_newer=True)) == ["first", "second"]  # a node that runs since before


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_a_migration_that_must_wait_for_a_table_gives_up_and_stops_nobody_for_long(
    settings: Settings, group: Group, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(group)
    (group.migrations / "v0002_lids.py").write_text(SECOND)
    monkeypatch.setattr(database, "DDL_PATIENCE", "200ms")
    reader = create_engine(settings.database)
    with reader.connect() as connection:
        connection.execute(text("SELECT name FROM crates"))  # and does not end its transaction
        with pytest.raises(Exception, match="lock timeout"):
            opened(group)
        assert crates(engine) == ["first"]
    reader.dispose()
    assert crates(opened(group)) == ["first", "second"]


@IN_BOTH
def test_no_node_or_beat_of_an_older_version_starts_on_a_newer_database(
    catalog: Catalog, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with catalog.engine.begin() as connection:
        connection.execute(text("UPDATE catalog_version SET version_num = '9999'"))
    monkeypatch.setenv("TASKS_DATABASE_URL", settings.database)
    with pytest.raises(SystemExit, match="newer than this program: its tables of the catalog have version 9999"):
        refuse_what_cannot_be_used()


@pytest.fixture
def guest(settings: Settings) -> Iterator[str]:
    """The address for an account that may read and write, and may not change the tables."""
    engine = create_engine(settings.database, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE ROLE guest LOGIN"))
        connection.execute(text("GRANT USAGE ON SCHEMA public TO guest"))
        connection.execute(text("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO guest"))
        yield make_url(settings.database).set(username="guest").render_as_string()
        connection.execute(text("DROP OWNED BY guest"))
        connection.execute(text("DROP ROLE guest"))
    engine.dispose()


@IN_BOTH
def test_a_database_is_known_under_any_address(settings: Settings, group: Group, opened: Opened) -> None:
    mine = identity(opened(group))
    assert mine == identity(opened(group))
    if settings.database_url:
        url = make_url(settings.database)
        with Proxy(url.port) as proxy:
            far = open_database(url.set(port=proxy.port).render_as_string(), "cn2", group)
            assert (identity(far), name_of(far) == name_of(opened(group))) == (mine, False)
        another = create_engine(url.set(database="postgres"))
        assert identity(another) != mine
        another.dispose()


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_who_may_not_run_a_migration_is_told_which_one_is_missing(
    settings: Settings, group: Group, opened: Opened, request: pytest.FixtureRequest
) -> None:
    opened(group)
    guest = request.getfixturevalue("guest")
    theirs = open_database(guest, "cn1", group)
    assert (crates(theirs), identity(theirs)) == (["first"], identity(opened(group)))
    (group.migrations / "v0002_lids.py").write_text(SECOND)
    with pytest.raises(UnusableDatabase) as refused:
        open_database(guest, "cn1", group)
    said = str(refused.value)
    assert "tables of the crates have version 0001" in said
    assert "needs 0002. It could not migrate them: must be owner of table crates" in said
    assert crates(opened(group)) == ["first", "second"]


@IN_BOTH
def test_a_query_ends_with_the_time_of_its_page_and_those_after_it_have_none(group: Group, opened: Opened) -> None:
    engine = opened(group, keeps=True)

    def count(to: int) -> int:
        numbers = (
            f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {to}) SELECT max(i) FROM n"
        )
        with engine.connect() as connection:
            return int(connection.execute(text(numbers)).scalar_one())

    with within(20), until(time.monotonic() + 0.3), pytest.raises(TimeoutError, match="time for these queries"):
        count(2**31 - 1)
    assert count(100_000) == 100_000


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_a_postgresql_that_falls_silent_is_given_up(
    settings: Settings, group: Group, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(group).connect() as connection:
        used = connection.connection.dbapi_connection.info.get_parameters()
    assert {name: used[name] for name in database.SILENCE} == {name: str(n) for name, n in database.SILENCE.items()}
    monkeypatch.setitem(database.SILENCE, "connect_timeout", 2)
    url = make_url(settings.database)
    with Proxy(url.port or 0) as proxy:
        proxy.swallow()
        with within(30), pytest.raises(OperationalError, match="timeout"):
            open_database(url.set(port=proxy.port).render_as_string(), "cn1", group)
    patient = open_database(f"{settings.database}?keepalives_idle=77", "cn1", group)
    with patient.connect() as connection:
        assert connection.connection.dbapi_connection.info.get_parameters()["keepalives_idle"] == "77"


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_what_a_host_locked_before_it_was_cut_off_is_free_again(
    settings: Settings, group: Group, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database.SILENCE, "options", database.SILENCE["options"].replace("30s", "1s"))
    near, url = opened(group), make_url(settings.database)
    write = database.meta.insert().values(name="locked", value="1")
    with Proxy(url.port or 0) as proxy:
        far = open_database(url.set(port=proxy.port).render_as_string(), "cn2", group)
        with far.connect() as connection:
            connection.execute(write)
            proxy.hold()
            try:
                with near.begin() as other:
                    other.exec_driver_sql("SET LOCAL lock_timeout = '15s'")
                    other.execute(write)
            finally:
                proxy.heal()
            with pytest.raises(InternalError, match="idle-in-transaction"):
                connection.commit()
