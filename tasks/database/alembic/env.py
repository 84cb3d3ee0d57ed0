"""Alembic runs this file. The caller's connection has its own transaction, and ends it."""

from alembic import context

given = context.config.attributes
context.configure(given["connection"], version_table=given["version_table"], transactional_ddl=True)
context.run_migrations()
