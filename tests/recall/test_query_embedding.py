"""Queries are embedded apart from the texts they are to find, where a model wants that."""

from collections.abc import Sequence
from pathlib import Path

import memory_engine
from memory_engine import EngineConfig, UserMessage
from memory_engine.llm.vectors import Vector
from memory_engine.recall.embedders import CachedEmbedder
from memory_engine.recall.likeness import Corpus, TextIndex
from memory_engine.storage.vectors.exact import ExactIndex
from memory_engine.testing import HashEmbedder


class Counting(HashEmbedder):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(8)
        self.calls: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Vectors of the texts."""
        self.calls.append(list(texts))
        return await super().embed(texts)


class Asymmetric(Counting):
    """Embeds queries in another way: as if they were marked."""

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Vectors of the marked texts."""
        return await self.embed([f"query: {text}" for text in texts])


async def test_queries_are_remembered_apart() -> None:
    """A text and a query of the same words have each their own vector; without `embed_query` they share one."""
    inner = Asymmetric()
    embedder = CachedEmbedder(inner)
    for _ in range(2):
        assert [inner.vector("Rome")] == await embedder.embed(["Rome"])
        assert [inner.vector("query: Rome")] == await embedder.embed_query(["Rome"])
    assert [["Rome"], ["query: Rome"]] == inner.calls
    plain = Counting()
    embedder = CachedEmbedder(plain)
    assert await embedder.embed(["Rome"]) == await embedder.embed_query(["Rome"])
    assert [["Rome"]] == plain.calls


async def test_a_search_embeds_its_query_as_a_query() -> None:
    """And the passages as passages, in a thread and in an index of likeness."""
    inner = Asymmetric()
    async with memory_engine.open(":memory:", embedder=inner) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content="to Rome"))
        await thread.search("Where to?")
    assert [["query: Where to?"]] == [texts for texts in inner.calls if texts[0].startswith("query: ")]
    assert 2 == len(inner.calls)
    inner.calls.clear()
    texts = {"a": "flights to Rome"}
    await TextIndex(inner, ExactIndex).search("Rome", Corpus(texts, texts.__getitem__), limit=1)
    assert [["flights to Rome"], ["query: Rome"]] == inner.calls


async def test_who_only_reads_leaves_the_vectors_to_others(tmp_path: Path) -> None:
    """A search with an embedder answers from what there is, and says how many passages have no vector yet."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="The code of the warehouse is 9921-KX."))
        await thread.search("warehouse")
    async with memory_engine.open(path, config=EngineConfig(read_only=True), embedder=HashEmbedder()) as engine:
        found = await engine.thread("t").search("warehouse")
        context = await engine.thread("t").context(query="warehouse")
    assert (1, 1, "") == (len(found), found.waiting, context.recall_failure)
