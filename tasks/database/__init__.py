"""The database of all the service's tables, SQLite or PostgreSQL; each group of tables has its own migrations."""

from tasks.database.columns import Instant, Value, insert, portions, upsert
from tasks.database.database import ForeignHost, NewerDatabase, OldDatabase, open_database
from tasks.database.group import Group

__all__ = [
    "ForeignHost",
    "Group",
    "Instant",
    "NewerDatabase",
    "OldDatabase",
    "Value",
    "insert",
    "open_database",
    "portions",
    "upsert",
]
