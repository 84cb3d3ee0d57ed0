"""Runs a group's migrations with Alembic, in the transaction of a connection."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from tasks.database.group import Group

ENVIRONMENT = Path(__file__).parent / "alembic"


def configuration(connection: Connection, group: Group) -> Config:
    config = Config(attributes={"connection": connection, "version_table": group.version_table})
    # Alembic would read a % in a path as a reference, and split paths at spaces.
    config.set_main_option("script_location", str(ENVIRONMENT).replace("%", "%%"))
    config.set_main_option("version_locations", str(group.migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    return config


def migrate(connection: Connection, group: Group) -> None:
    command.upgrade(configuration(connection, group), "head")
