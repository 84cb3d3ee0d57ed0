"""Alembic runs this file. The caller's connection has its own transaction, and ends it."""

from alembic import context

attributes = context.config.attributes
context.configure(attributes["connection"], version_table=attributes["version_table"], transactional_ddl=True)
context.run_migrations()
