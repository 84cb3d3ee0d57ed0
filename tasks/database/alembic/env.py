"""Runs the migrations on the connection in the configuration's attributes, when Alembic executes this file.

The caller begins and commits the transaction.
"""

from alembic import context

attributes = context.config.attributes
context.configure(attributes["connection"], version_table=attributes["version_table"], transactional_ddl=True)
context.run_migrations()
