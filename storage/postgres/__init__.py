"""The PostgreSQL store: one schema of a database, for any number of processes on any number of machines."""

from memory_engine.storage.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
