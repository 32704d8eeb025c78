"""Run by Alembic: migrate on the connection that `redrive.store.upgrade` hands over.

The transaction is the caller's, so an upgrade happens as a whole or not at all, on SQLite too.
"""

from __future__ import annotations

from alembic import context

from redrive.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
