"""Models that hang, and threads that are not there yet: the answer comes without them, and says so."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

import memory_engine
from memory_engine import AgentLifecycle, EngineConfig, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.errors import ModelError
from memory_engine.llm.vectors import Vector
from memory_engine.recall.service import Recall
from memory_engine.testing import HashEmbedder

SOON = EngineConfig(search_model_timeout_s=0.02)


class Hanging(HashEmbedder):
    """An embedder that answers until it is told to hang."""

    hangs = False

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Hang, or answer."""
        if self.hangs:
            await asyncio.Event().wait()
        return await super().embed(texts)


class HangingReranker:
    """A re-ranker that never answers."""

    name = "slow"

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Hang."""
        await asyncio.Event().wait()
        raise AssertionError(query, texts)

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_a_search_goes_on_without_an_embedder_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """Words decide; the result and the log say that the embedder did not answer."""
    embedder = Hanging(8)
    async with memory_engine.open(":memory:", embedder=embedder, config=SOON) as engine:
        thread = await engine.create_thread(user_id="u")
        await thread.dispatch(UserMessage(content="Revenue dips every Sunday"))
        assert ("hybrid", ()) == ((found := await thread.search("revenue")).how, found.missing)
        embedder.hangs = True
        for _ in range(2):
            await thread.dispatch(UserMessage(content="Revenue rises on Monday"))
            found = await thread.search("revenue")
            assert (("embedder",), "lexical", True) == (found.missing, found.how, len(found) > 0)
            assert "no answer within 0.02 s" in found.failure
        told = [one for one in caplog.records if one.getMessage().startswith("a search goes by words alone")]
        assert [logging.WARNING] * 2 == [one.levelno for one in told]
        embedder.hangs = False
        assert ("hybrid", ()) == ((found := await thread.search("revenue")).how, found.missing)


class HangsOnTexts(HashEmbedder):
    """An embedder that answers questions, and hangs on passages."""

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Answer."""
        return await super().embed(texts)

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Hang."""
        await asyncio.Event().wait()
        raise AssertionError(texts)


async def test_passages_that_wait_for_a_hanging_embedder_are_found_by_their_words() -> None:
    """Also while the engine's own queue waits for it."""
    async with memory_engine.open(":memory:", embedder=HangsOnTexts(8), config=SOON) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="Revenue dips every Sunday"))
        for _ in range(2):
            found = await thread.search("revenue")
            assert (1, 1) == (len(found), found.waiting)


class Slow(HashEmbedder):
    """An embedder that takes too long for many texts."""

    sizes: list[int]

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Answer, if there are few."""
        self.sizes.append(len(texts))
        if len(texts) > 20:
            await asyncio.Event().wait()
        return await super().embed(texts)


async def test_an_embedder_that_is_too_slow_for_a_batch_gets_smaller_ones() -> None:
    """Preparing a search raises at the deadline; prepared again, all passages have their vectors."""
    embedder = Slow(8)
    embedder.sizes = []
    async with memory_engine.open(":memory:", config=EngineConfig(search_model_timeout_s=0.5)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content=f"Crate {n} is in hall {n}") for n in range(40)])
        await thread.admin.prepare_search()
        kernel_of(engine)[Recall]._models.embedder = embedder
        with pytest.raises(ModelError, match="no answer within"):
            await thread.admin.prepare_search()
        await thread.admin.prepare_search()
        assert (40, 10, 40) == (*embedder.sizes[:2], sum(embedder.sizes[1:]))
        assert 0 == (await thread.search("crate")).waiting


async def test_a_search_goes_on_without_a_reranker_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """The order of the search stands."""
    async with memory_engine.open(":memory:", reranker=HangingReranker(), config=SOON) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="Revenue dips every Sunday"))
        found = await thread.search("revenue")
        assert (1, ("re-ranker",)) == (len(found), found.missing)
        assert ["a search goes on without its re-ranker: model 'slow': timeout: no answer within 0.02 s"] == [
            one.getMessage() for one in caplog.records
        ]


async def test_views_go_on_without_an_embedder_that_hangs() -> None:
    """What compares texts by meaning compares their words."""
    embedder = Hanging(8)
    async with memory_engine.open(":memory:", embedder=embedder, config=SOON) as engine:
        user = engine.user("u")
        await user.playbooks.save("report", user_query="Make the weekly report", outcome="a chart")
        embedder.hangs = True
        (match,) = await user.playbooks.find("make the weekly report")
        assert "Make the weekly report" == match.playbook.user_query


@pytest.mark.parametrize("tenant_id", ["", "acme"])
async def test_a_user_that_nothing_was_dispatched_to_has_empty_views(tenant_id: str) -> None:
    """With an embedder as without: no view of theirs is an error, nor a run of an agent for them."""
    async with memory_engine.open(":memory:", embedder=HashEmbedder(8)) as engine:
        user = engine.user("u", tenant_id=tenant_id)
        assert () == await user.playbooks.find("weekly report")
        await user.preferences.applicable(query="weekly report")
        assert 0 == len(await user.search("weekly report"))
        thread = await engine.create_thread(user_id="u", tenant_id=tenant_id)
        assert await thread.views.flows.prepare("report", "weekly report") is None
        async with AgentLifecycle(engine, thread, agent_id="analyst").run("Make the weekly report") as run:
            run.result = "done"
        await thread.context(query="weekly report", recall_from=[user])
