"""What the tests of PostgreSQL share: a server, and a schema of its own for each test."""

from collections.abc import AsyncIterator

import pytest

from memory_engine.storage.postgres import PostgresStore
from tests.postgres_server import new_url


@pytest.fixture
def url() -> str:
    """The URL of a store that nobody has used."""
    return new_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store that is closed after the test."""
    store = await PostgresStore.open(url)
    yield store
    await store.close()
