"""Every back end keeps the storage contract."""

import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memory_engine.storage.memory import MemoryStore
from memory_engine.storage.postgres import PostgresStore
from memory_engine.storage.sqlite import SQLiteStore
from memory_engine.store.keys import Key
from memory_engine.store.protocol import Store
from memory_engine.testing import FaultyStore
from memory_engine.testing.contract_views import StoreFactory
from memory_engine.testing.store_contract import StoreContract
from tests.postgres_pooler import pooled_url
from tests.postgres_server import emptied_schema, new_url
from tests.trust.sealing import RAW, sealed


class TestMemoryStore(StoreContract):
    """The in-memory store."""

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """A new store each time: nothing is shared."""

        async def make() -> Store:
            return MemoryStore()

        return make


class TestSQLiteStore(StoreContract):
    """SQLite, as it is by default."""

    persistent = True

    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        """One file for the test."""
        return functools.partial(SQLiteStore.open, str(tmp_path / "store.db"))


class TestEncryptedStore(StoreContract):
    """SQLite with a key."""

    persistent = True

    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        """One file for the test."""
        sealed()
        return functools.partial(SQLiteStore.open, str(tmp_path / "store.db"), key=Key(RAW))


class TestSQLiteStoreInFull(StoreContract):
    """SQLite with an fsync at every commit."""

    persistent = True

    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        """One file for the test."""
        return functools.partial(SQLiteStore.open, str(tmp_path / "store.db"), durability="full")


@pytest.fixture
async def schema() -> AsyncIterator[str]:
    """A schema without a row. That a store makes one is for `tests/postgres` to see."""
    async with emptied_schema() as name:
        yield name


class TestPostgresStore(StoreContract):
    """PostgreSQL, in an empty schema for each test."""

    persistent = True

    @pytest.fixture
    def store_factory(self, schema: str) -> StoreFactory:
        """One schema for the test."""
        return functools.partial(PostgresStore.open, new_url(schema=schema))


class TestPostgresStoreUnprepared(StoreContract):
    """PostgreSQL where nothing is prepared and each call is one transaction."""

    persistent = True

    @pytest.fixture
    def store_factory(self, schema: str) -> StoreFactory:
        """One schema for the test."""
        return functools.partial(PostgresStore.open, new_url(schema=schema, prepared="no"))


class TestPostgresStoreBehindAPooler(StoreContract):
    """PostgreSQL behind PgBouncer, which gives each transaction whatever connection is free."""

    persistent = True

    @pytest.fixture
    def store_factory(self, schema: str) -> StoreFactory:
        """One schema for the test."""
        return functools.partial(PostgresStore.open, pooled_url(schema=schema))


class TestFaultyStore(StoreContract):
    """The wrapper that injects faults is a store like any other while none is planned."""

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """The wrapper around an in-memory store."""

        async def make() -> Store:
            return FaultyStore(MemoryStore())

        return make
