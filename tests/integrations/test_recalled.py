"""What adapters recall of a user's conversations: whose it is, for which request, and when a model fails."""

import asyncio
from collections.abc import Sequence

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, ToolResult, UserMessage
from memory_engine.errors import ScopeRequired, ThreadDiffers
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.integrations.recalled import recalled
from memory_engine.llm.vectors import Embedder

FACT = "The spare fuse for the greenhouse heater is in the blue tin."
ASKED = "Where is the spare fuse for the greenhouse heater?"


async def said(engine: Engine, thread_id: str, text: str, user: str = "ann", agent: str = "") -> None:
    """A message of a conversation."""
    thread = await engine.open_thread(thread_id, user_id=user, agent_id=agent)
    await thread.dispatch(UserMessage(content=text))


async def asked(engine: Engine, user: str = "ann", request: str = "", max_tokens: int = 400, agent: str = "") -> str:
    """What is recalled in a conversation that has not begun."""
    owned = OwnedThreads(engine=engine, user_id=user, agent_id=agent)
    return await recalled(owned, f"new of {user}", ASKED, max_tokens=max_tokens, request=request)


class Failing:
    """An embedder that fails as no embedder should."""

    name = "failing"

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    @property
    def dimension(self) -> int:
        """Of no vector."""
        return 3

    async def aclose(self) -> None:
        """Nothing is open."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Raise, or never answer."""
        if self.error is None:
            await asyncio.Event().wait()
        raise self.error or AssertionError


@pytest.mark.parametrize("error", [RuntimeError("out of order"), OSError("no route"), None])
async def test_an_embedder_that_fails_breaks_nothing(error: Exception | None) -> None:
    """Words decide, also when it does not answer in time."""
    embedder: Embedder = Failing(error)
    config = EngineConfig(search_model_timeout_s=0.05)
    async with memory_engine.open(":memory:", embedder=embedder, config=config) as engine:
        await said(engine, "old", FACT)
        assert FACT in await asked(engine)


async def test_a_request_is_searched_for_once() -> None:
    """Another one sees what was said meanwhile; calls at the same time get the same."""
    async with memory_engine.open(":memory:") as engine:
        await said(engine, "old", FACT)
        one, other = await asyncio.gather(asked(engine, request="r1"), asked(engine, request="r1"))
        assert one == other
        await said(engine, "older", "The spare fuse of the greenhouse heater was used up in March.")
        assert one == await asked(engine, request="r1")
        assert "March" in await asked(engine, request="r2")
        assert "March" in await asked(engine)


async def test_what_was_forgotten_or_deleted_leaves_a_request_at_once() -> None:
    """The source's thread may be another one."""
    async with memory_engine.open(":memory:") as engine:
        await said(engine, "old", FACT)
        await said(engine, "also", "The greenhouse heater takes a spare fuse of ten amperes.")
        assert "blue tin" in await asked(engine, request="r1")
        [event_id] = [event.id async for event in engine.thread("old").events() if FACT in str(event.event)]
        await engine.thread("old").forget(event_ids=[event_id], reason="it moved")
        left = await asked(engine, request="r1")
        assert ("ten amperes" in left, "blue tin" in left) == (True, False)
        await engine.thread("also").admin.delete(reason="it is over")
        assert "" == await asked(engine, request="r1")


async def test_only_the_owners_conversations_are_searched() -> None:
    """Of an agent that is named, only its own; of nobody, only the thread itself; never instructions, nor scopes."""
    async with memory_engine.open(":memory:") as engine:
        await said(engine, "of the cook", FACT, agent="cook")
        await said(engine, "of nobody", FACT, user="")
        await engine.user("ben").preferences.update("greenhouse", FACT)
        instructed = await engine.create_thread("instructed", user_id="ben")
        await instructed.record([{"role": "system", "content": f"Spare fuse for the greenhouse heater: {FACT}"}])
        assert "" == await asked(engine, user="ben")
        assert "" == await asked(engine, user="")
        assert FACT in await asked(engine, agent="cook")
        assert "" == await asked(engine, agent="gardener")
        assert FACT in await asked(engine)
        with pytest.raises(ThreadDiffers):
            await recalled(OwnedThreads(engine=engine, user_id="ben"), "of nobody", ASKED, max_tokens=400)
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        with pytest.raises(ScopeRequired):
            await asked(engine, user="")


async def test_results_of_tools_are_recalled_and_long_ones_are_cut() -> None:
    """Within the tokens that are given, on the sentence that answers."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("old", user_id="ann")
        filler = "The greenhouse was painted white and its door was oiled again. " * 40
        await thread.dispatch(ToolResult(call_id="", content=f"{filler}{FACT} {filler}"))
        found = await asked(engine, max_tokens=120)
        assert FACT in found
        assert len(found) < 120 * 6
        assert "" == await asked(engine, max_tokens=8)
