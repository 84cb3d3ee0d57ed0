"""One database for all the service's tables, in SQLite or PostgreSQL; each group of tables has its own migrations."""

from tasks.database.columns import Instant, Value, insert, portions, upsert
from tasks.database.database import ForeignHost, Group, NewerDatabase, OldDatabase, open_database

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
