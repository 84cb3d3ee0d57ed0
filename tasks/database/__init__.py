"""Opens the database with all tables of the service, in SQLite or PostgreSQL, and migrates each group of tables."""

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
