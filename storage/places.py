"""Stores by their place: a path, a server's URL, or memory. A back end is loaded when a place needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from memory_engine.core.arguments import PathLike, checked_path
from memory_engine.errors import BackupFailed, MissingExtra, SchemaError
from memory_engine.errors.base import is_url
from memory_engine.runtime.config import EngineConfig
from memory_engine.store.protocol import Backup, Copied, Store, StoreSchema

Durability = Literal["normal", "full"]


async def open_store(path: str, durability: Durability, config: EngineConfig) -> Store:
    """Open the store at a place. Raises `SchemaError`, `StorageFailed`, `MissingExtra`."""
    if path == ":memory:":
        from memory_engine.storage.memory import MemoryStore

        return MemoryStore()
    check_back_end(path)
    if is_url(path):
        with _with_postgres():
            from memory_engine.storage.postgres import PostgresStore
        busy_s, read_only = config.busy_timeout_s, config.read_only
        return await PostgresStore.open(path, durability=durability, busy_timeout_s=busy_s, read_only=read_only)
    from memory_engine.storage.sqlite.store import SQLiteStore

    if config.read_only:
        return await SQLiteStore.open_read_only(path, busy_timeout_s=config.busy_timeout_s)
    return await SQLiteStore.open(path, durability=durability, busy_timeout_s=config.busy_timeout_s)


async def restore(backup: PathLike, path: PathLike, progress: Copied | None = None) -> Backup:
    """Create a new store from a backup: a copy, checked like it (see `Engine.backup`). The backup stays unchanged.

    Raises `FileExistsError` if something is at `path`: a restore never overwrites. Raises `SchemaError` for a file that
    is not a store, `StorageFailed` if there is none, `BackupFailed` for a damaged one.
    """
    source, target = checked_path("backup", backup), checked_path("path", path)
    for place in (source, target):
        if is_url(place):
            why = "a backup is one file, and so is its copy; `memory-engine copy FROM TO` takes URLs"
            raise BackupFailed(place, why)
    from memory_engine.storage.sqlite.backup import back_up_file

    timeout_s = EngineConfig().busy_timeout_s
    return await back_up_file(source, target, timeout_s, progress or (lambda *_: None), writes_nothing=True)


def schema_of(place: str) -> StoreSchema:
    """The schema of a closed store, to inspect and bring up to date (see `memory-engine migrate`).

    Raises `SchemaError` for `":memory:"`, and for a URL of another kind of database.
    """
    if place == ":memory:":
        raise SchemaError(place, "a store in memory is always new; give a path")
    check_back_end(place)
    if is_url(place):
        with _with_postgres():
            from memory_engine.storage.postgres.migration import PostgresSchema

        return PostgresSchema(place, busy_timeout_s=EngineConfig().busy_timeout_s)
    from memory_engine.storage.sqlite.migration import SQLiteSchema

    return SQLiteSchema(place, busy_timeout_s=EngineConfig().busy_timeout_s)


def check_back_end(place: str) -> None:
    """Raise `SchemaError` for the URL of a database that has no back end."""
    if is_url(place) and not place.startswith(("postgres://", "postgresql://")):
        why = "it is neither a path nor the URL of a PostgreSQL database (postgresql://user@host/database)"
        raise SchemaError(place, why)


@contextmanager
def _with_postgres() -> Iterator[None]:
    """Say which extra is missing where the driver of PostgreSQL is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise MissingExtra("a memory in PostgreSQL", "postgres") from None
