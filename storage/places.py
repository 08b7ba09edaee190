"""Stores by their place: a path, a server's URL, or memory. A back end is loaded when a place needs it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from memory_engine.core.arguments import PathLike, checked_path
from memory_engine.core.lazy import lazy_module
from memory_engine.errors import BackupFailed, KeyUnsupported, MissingExtra, SchemaError
from memory_engine.errors.base import is_url
from memory_engine.runtime.config import EngineConfig
from memory_engine.store.protocol import Backup, Copied, Store, StoreSchema

if TYPE_CHECKING:
    from memory_engine.store import keys
    from memory_engine.store.keys import Key, KeySource
else:
    keys = lazy_module("memory_engine.store.keys")

Durability = Literal["normal", "full"]


async def open_store(
    path: str, durability: Durability, config: EngineConfig, secret: "KeySource | None" = None
) -> Store:
    """Open the store at a place. Raises `SchemaError`, `StorageFailed`, `MissingExtra`, and the errors of keys."""
    if secret is not None and (path == ":memory:" or is_url(path)):
        raise KeyUnsupported(path)
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

    key = None if secret is None else await keys.given_key(secret)
    if config.read_only:
        return await SQLiteStore.open_read_only(path, busy_timeout_s=config.busy_timeout_s, key=key)
    return await SQLiteStore.open(path, durability=durability, busy_timeout_s=config.busy_timeout_s, key=key)


async def restore(  # noqa: PLR0913 - keys by keyword
    backup: PathLike,
    path: PathLike,
    progress: Copied | None = None,
    *,
    key: "KeySource | None" = None,
    new_key: "KeySource | None" = None,
    plain: bool = False,
) -> Backup:
    """Create a new store from a backup: a copy, checked like it (see `StoreAdmin.backup`). The backup stays unchanged.

    `key` opens an encrypted backup. The new store has the same one, unless you give a `new_key`, or ask for a `plain`
    store. Raises `FileExistsError` if something is at `path`: a restore never overwrites. Raises `SchemaError` for a
    file that is not a store, `StorageFailed` for a missing one, `BackupFailed` for a damaged one, `KeyNeeded`,
    `WrongKey`, `NotEncrypted` and `InvalidKey`.
    """
    source, target = checked_path("backup", backup), checked_path("path", path)
    for place in (source, target):
        if is_url(place):
            why = "a backup is one file, and so is its copy; `memory-engine copy FROM TO` takes URLs"
            raise BackupFailed(place, why)
    other = await keys.other_key(new_key, plain=plain)
    from memory_engine.storage.sqlite.backup import back_up_file, target_of
    from memory_engine.storage.sqlite.file import checked_file

    timeout_s = EngineConfig().busy_timeout_s
    file = await checked_file(source, await keys.given_key(key))
    made = await asyncio.to_thread(target_of, file, target, other, plain=plain)
    return await back_up_file(file, made, timeout_s, progress or (lambda *_: None), writes_nothing=True)


def schema_of(place: str, key: "Key | None" = None) -> StoreSchema:
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

    return SQLiteSchema(place, busy_timeout_s=EngineConfig().busy_timeout_s, key=key)


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
