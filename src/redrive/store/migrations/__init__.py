"""Alembic's folder: how a store of any earlier version becomes one of this."""
