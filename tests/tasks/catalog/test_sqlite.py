"""A catalog in SQLite lasts, and serves one host."""

from pathlib import Path

import pytest
from sqlalchemy import text

from tasks.catalog.catalog import Catalog
from tasks.database import UnusableDatabase, upsert
from tasks.database.database import meta
from tasks.settings import Settings

pytestmark = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


def test_a_sqlite_catalog_is_durable_and_refuses_to_be_in_memory(catalog: Catalog, settings: Settings) -> None:
    with catalog.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
    with pytest.raises(ValueError, match="has neither a file nor a server"):
        Catalog(settings.model_copy(update={"database_url": "sqlite://"}))


def test_a_second_host_is_refused_with_the_remedy(settings: Settings) -> None:
    mine = Catalog(settings.model_copy(update={"host": "cn1"}))
    Catalog(settings.model_copy(update={"host": "a-container-of-the-same-machine"}))
    with mine.engine.begin() as connection:
        upsert(connection, meta, [{"name": "host", "value": "cn1"}, {"name": "boot", "value": "of another machine"}])
    with pytest.raises(UnusableDatabase, match=r"belongs to host cn1, and this is cn2.*PostgreSQL.*TASKS_HOST=cn1"):
        Catalog(settings.model_copy(update={"host": "cn2"}))
    rebooted = Catalog(settings.model_copy(update={"host": "cn1"}))
    assert Path(rebooted.engine.url.database or "").name == "catalog.sqlite"
