"""Runs the migrations of a group of tables with Alembic, in the transaction of a connection."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from tasks.database.group import Group

ENVIRONMENT = Path(__file__).parent / "alembic"


def configuration(connection: Connection, group: Group) -> Config:
    """Build the configuration with which Alembic runs the group's migrations on the connection."""
    config = Config(attributes={"connection": connection, "version_table": group.version_table})
    # Alembic reads a % in an option as a reference, so write %%. With the separator `newline` a path may have spaces.
    config.set_main_option("script_location", str(ENVIRONMENT).replace("%", "%%"))
    config.set_main_option("version_locations", str(group.migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    return config


def migrate(connection: Connection, group: Group) -> None:
    """Run the group's migrations that have not run yet. Neither begins nor commits the connection's transaction."""
    command.upgrade(configuration(connection, group), "head")
