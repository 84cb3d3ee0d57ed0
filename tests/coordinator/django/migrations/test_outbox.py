"""The migrations make the tables of the models."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData

from coordinator import outbox_table
from tests.harness import djangos


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[str]:
    """The name of an empty database of Django."""
    djangos.set_up()
    from django.db import connections

    name = tmp_path.name
    at = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "empty"}
    connections.settings[name] = connections.settings["default"] | at
    yield name
    connections[name].close()
    del connections.settings[name]


def test_the_table_of_the_outbox_is_that_of_the_model_and_of_sqlalchemy(empty: str) -> None:
    from django.core.management import call_command
    from django.db import connections

    call_command("makemigrations", "coordinator", check=True, dry_run=True, verbosity=0)
    call_command("migrate", "coordinator", database=empty, verbosity=0)
    table = outbox_table(MetaData())
    with connections[empty].cursor() as cursor:
        described = connections[empty].introspection.get_table_description(cursor, table.name)
    assert [column.name for column in described] == list(table.columns.keys())
    assert not any(column.null_ok for column in described)
