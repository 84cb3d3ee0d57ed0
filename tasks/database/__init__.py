"""The database of all the service's tables, SQLite or PostgreSQL; each group of tables has its own migrations."""

from tasks.database.columns import Instant, Value, insert, portions, upsert
from tasks.database.database import UnusableDatabase, identity, name_of, open_database
from tasks.database.group import Group

__all__ = [
    "Group",
    "Instant",
    "UnusableDatabase",
    "Value",
    "identity",
    "insert",
    "name_of",
    "open_database",
    "portions",
    "upsert",
]
