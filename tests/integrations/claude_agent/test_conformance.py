"""The SDK's own conformance suite for session stores."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from claude_agent_sdk.testing import run_session_store_conformance

import memory_engine
from memory_engine.integrations.claude_agent import MemoryEngineSessionStore


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What closes the engines at the end."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.mark.parametrize("scopes", [{}, {"user_id": "ann", "tenant_id": "acme", "agent_id": "gardener"}])
@pytest.mark.parametrize("where", ["memory", "file"])
async def test_the_sdk_accepts_the_store(
    stack: AsyncExitStack, tmp_path: Path, where: str, scopes: dict[str, str]
) -> None:
    """All 14 contracts, none skipped, each in an engine of its own."""
    made = 0

    async def make() -> MemoryEngineSessionStore:
        nonlocal made
        made += 1
        place = ":memory:" if where == "memory" else str(tmp_path / f"{made}.db")
        engine = await stack.enter_async_context(memory_engine.open(place))
        return MemoryEngineSessionStore(engine, **scopes)

    await run_session_store_conformance(make)
    assert made >= 14
