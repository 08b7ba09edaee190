"""A PostgreSQL server for tests: one for each process of a run, started when a test first asks for it."""

import atexit
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import cache
from unittest import mock
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

import asyncpg
import pytest

import memory_engine
from memory_engine import Engine
from memory_engine.storage.postgres.schema import REFERENCE_TABLES, THREAD_TABLES
from tests.postgres_cluster import UNSYNCED, NoServer, running


@cache
def server_url() -> str:
    """The URL of the server. Skips, saying why, where none can be had; in CI it fails, which has to have one.

    `MEMORY_ENGINE_POSTGRES` names one that is there already. Its files are in a temporary directory and are not synced:
    what is tested is this package, not the disk.
    """
    given = os.environ.get("MEMORY_ENGINE_POSTGRES")
    if given:
        return given
    server, ours = ExitStack(), os.getpid()
    try:
        settings = {**UNSYNCED, "max_prepared_transactions": "8", "autovacuum": "off"}
        url = server.enter_context(running(settings)).url
    except NoServer as why:
        end = pytest.fail if "CI" in os.environ else pytest.skip
        end(f"{why}; or set MEMORY_ENGINE_POSTGRES to a server's URL")
    atexit.register(lambda: server.close() if os.getpid() == ours else None)
    return url


def new_url(**options: str) -> str:
    """The URL of a store that nobody has used: a schema of its own. Skips where there is no server."""
    return new_store(server_url(), **options)


def new_store(url: str, **options: str) -> str:
    """The same at the address of a server."""
    schema = f"t_{uuid4().hex[:20]}"
    given = "&".join(f"{name}={quote(value)}" for name, value in {"schema": schema, **options}.items())
    return f"{url}{'&' if '?' in url else '?'}{given}"


USES_MAX = 30
"""How many tests use a schema, one after the other: deleted rows take room, and no test asks for a vacuum."""
_EMPTIED: list[tuple[str, int]] = []


@asynccontextmanager
async def emptied_schema() -> AsyncIterator[str]:
    """The name of a schema without a row, for one test after another: to make one costs five times as much."""
    schema, uses = _EMPTIED.pop() if _EMPTIED else (f"t_{uuid4().hex[:20]}", 1)
    server_url()  # skips where there is no server
    yield schema
    if uses < USES_MAX and await _is_emptied(schema):
        _EMPTIED.append((schema, uses + 1))


async def _is_emptied(schema: str) -> bool:
    """Leave the tables as the migrations made them; return False if there are none."""
    connection = await asyncpg.connect(server_url())
    try:
        found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        if not found:
            return False
        assert {*THREAD_TABLES, *REFERENCE_TABLES} == {row[0] for row in found}
        rows = "; ".join(f'DELETE FROM "{schema}".{table}' for table in (*THREAD_TABLES, "acts"))
        await connection.execute(f'{rows}; UPDATE "{schema}".store_state SET value = 0')
        return True
    finally:
        await connection.close()


def server_place() -> Mapping[str, str]:
    """The server's host (or the folder of its socket) and port, a user, a database, and a password if there is one."""
    parts = urlsplit(server_url())
    return {
        "host": parts.hostname or parse_qs(parts.query)["host"][0],
        "port": str(parts.port or 5432),
        "user": parts.username or "postgres",
        "dbname": parts.path.strip("/"),
        **({"password": parts.password} if parts.password else {}),
    }


@contextmanager
def on_server() -> Iterator[None]:
    """Within, whatever names a place in memory, or a file, opens a store on the server: each path always the same."""
    opened, places = memory_engine.open, defaultdict[str, str](new_url)

    def moved(place: object, **options: object) -> AbstractAsyncContextManager[Engine]:
        if not isinstance(place, str):
            return opened(place, **options)  # type: ignore[arg-type]
        return opened(new_url() if place == ":memory:" else places[place], **options)  # type: ignore[arg-type]

    with mock.patch.object(memory_engine, "open", moved):
        yield
