"""The SDK's own tests of its sessions in SQLite, run on those that keep their items in a memory."""

import sys
from collections.abc import Coroutine
from types import ModuleType
from typing import Any, TypeVar

from memory_engine.errors import EngineClosed
from memory_engine.integrations.openai_agents import MemoryEngineSession
from tests.integrations.beside import peer_tests

T = TypeVar("T")
CONNECTIONS = "connections and locks of the SDK's own session, by private names"
CORRUPT = "rows that are not JSON, written into a table of the SDK's own session"
TABLES = "drops, changes or reads tables of the SDK's own session"
LEFT_OUT = {
    "test_sqlite_session_close_closes_worker_thread_connections": CONNECTIONS,
    "test_sqlite_session_pop_item_skips_corrupt_most_recent": CORRUPT,
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": CORRUPT,
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": CORRUPT,
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": CORRUPT,
    "test_sqlite_session_file_lock_is_shared_across_instances": CONNECTIONS,
    "test_sqlite_session_failed_add_items_releases_write_lock": TABLES,
    "test_sqlite_session_failed_clear_session_rolls_back": TABLES,
    "test_sqlite_session_failed_pop_item_releases_write_lock": TABLES,
    "test_sqlite_session_rollback_failure_evicts_connection": CONNECTIONS,
    "test_sqlite_session_close_retries_quarantined_connection": CONNECTIONS,
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome": CONNECTIONS,
    "test_async_sqlite_session_pop_item_skips_corrupt_most_recent": CORRUPT,
    "test_async_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": CORRUPT,
    "test_async_sqlite_session_get_items_limit_skips_corrupt_newest_rows": CORRUPT,
    "test_async_sqlite_session_get_items_same_timestamp_consistent_order": TABLES,
    "test_async_sqlite_session_pop_item_same_timestamp_returns_latest": TABLES,
    "test_cancelled_close_finishes_cleanup_and_propagates_cancellation": CONNECTIONS,
    "test_post_commit_cancellation_propagates_after_known_mutation_outcome": CONNECTIONS,
    "test_failed_add_items_rolls_back_and_reuses_connection": CONNECTIONS,
    "test_failed_clear_session_rolls_back": TABLES,
    "test_failed_pop_item_releases_write_lock": TABLES,
    "test_failed_initialization_closes_candidate_connection": CONNECTIONS,
    "test_cancelled_add_items_rolls_back_write_transaction": CONNECTIONS,
    "test_operation_failure_then_cancellation_during_rollback": CONNECTIONS,
    "test_rollback_failure_closes_and_evicts_connection": CONNECTIONS,
    "test_close_retries_connection_quarantined_after_rollback_failure": CONNECTIONS,
    "test_close_retries_quarantined_failed_initialization_candidate": CONNECTIONS,
    "test_cancelled_initialization_finishes_candidate_close": CONNECTIONS,
    "test_initialization_failure_then_cancellation_during_candidate_close": CONNECTIONS,
    "test_cancelled_connect_closes_eventually_acquired_connection": CONNECTIONS,
}
"""Tests of the database that the SDK's own sessions write to, by name, each with its reason."""


class Named(MemoryEngineSession):
    """A session whose error says that it is closed in the words of the SDK's own."""

    name = "SQLiteSession"

    def __init__(self, session_id: str, path: object = ":memory:", **options: Any) -> None:
        super().__init__(session_id, str(path), **options)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """See `MemoryEngineSession`."""
        return await self._named(super().get_items(limit))

    async def add_items(self, items: list[Any]) -> None:
        """See `MemoryEngineSession`."""
        await self._named(super().add_items(items))

    async def pop_item(self) -> Any:
        """See `MemoryEngineSession`."""
        return await self._named(super().pop_item())

    async def clear_session(self) -> None:
        """See `MemoryEngineSession`."""
        await self._named(super().clear_session())

    async def _named(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except EngineClosed:
            raise RuntimeError(f"{self.name} is closed") from None


class AsyncNamed(Named):
    """In place of `AsyncSQLiteSession`, which is closed by an `await`."""

    name = "AsyncSQLiteSession"

    async def close(self) -> None:  # type: ignore[override]
        """Close it."""
        super().close()


def loaded(name: str, known_as: str) -> ModuleType:
    """One of the SDK's files, under the name by which the others import it."""
    module = peer_tests(f"openai_agents/{name}.py")
    sys.modules[known_as] = module
    return module


loaded("test_responses", "tests.test_responses")
sys.modules["tests.memory"] = ModuleType("tests.memory")
MODULES = (
    loaded("test_session", "tests.memory.test_session"),
    loaded("test_async_sqlite_session", "tests.memory.test_async_sqlite_session"),
    loaded("test_session_limit", "tests.memory.test_session_limit"),
)
TESTS = {name: test for module in MODULES for name, test in vars(module).items() if name.startswith("test_")}
for module in MODULES:
    vars(module).update(SQLiteSession=Named, AsyncSQLiteSession=AsyncNamed)
globals().update({name: test for name, test in TESTS.items() if name not in LEFT_OUT})
agent = MODULES[1].agent


def test_each_test_that_is_left_out_is_there() -> None:
    """Of 78 tests, 31 are of the SDK's own tables and connections."""
    assert LEFT_OUT.keys() <= TESTS.keys()
    assert (78, 31) == (len(TESTS), len(LEFT_OUT))
