"""ADK's own tests of its session services, run on this one and on ADK's own, which stays in memory."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import google.adk.sessions
import pytest
from google.adk.sessions import InMemorySessionService

import memory_engine
from memory_engine.integrations.adk import MemoryEngineSessionService
from tests.integrations.beside import peer_tests

# ADK's own service on a database needs SQLAlchemy, and takes no part here: this one has its name for the import
vars(google.adk.sessions)["DatabaseSessionService"] = MemoryEngineSessionService
PEER = peer_tests("adk/test_session_service.py")
TESTS = {name: test for name, test in vars(PEER).items() if name.startswith("test_")}
KEPT_AT_HAND = "newer ADK keeps `temp:` state in the session at hand, for the agents that come next; not in a store"
LEFT_OUT = {"test_session_state": KEPT_AT_HAND, "test_create_new_session_will_merge_states": KEPT_AT_HAND}
"""Tests that ADK's own service does not pass either, each with its reason."""


@pytest.fixture
async def ours() -> AsyncIterator[Callable[[], Any]]:
    """Makes the service under test."""
    async with memory_engine.open(":memory:") as engine:
        yield lambda: MemoryEngineSessionService(engine)


async def run(name: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test of the peer's with a service of ours."""
    monkeypatch.setattr(PEER, "get_session_service", lambda *_: make())
    await inspect.unwrap(TESTS[name])(None)


@pytest.mark.parametrize("name", sorted(TESTS.keys() - LEFT_OUT.keys()))
async def test_the_service_does_what_adks_own_does(
    name: str, ours: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every test that ADK's own passes."""
    await run(name, ours, monkeypatch)


@pytest.mark.parametrize("name", LEFT_OUT)
async def test_a_test_that_is_left_out_fails_on_adks_own_service(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the same place as here. Of 8 tests 6 are run."""
    assert 8 == len(TESTS)
    with pytest.raises(AssertionError):
        await run(name, InMemorySessionService, monkeypatch)
