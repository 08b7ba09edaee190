"""Every embedder keeps the contract, and the contract finds embedders that do not."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest

from memory_engine.errors import MissingExtra, ModelError
from memory_engine.llm import LiteLLMEmbedder, RequestOptions
from memory_engine.llm.vectors import Embedder, Vector
from memory_engine.recall.embedders import CachedEmbedder, LocalEmbedder, MiniLMEmbedder, NumericVector
from memory_engine.testing import EmbedderContract, HashEmbedder
from memory_engine.testing.embedder_contract import EmbedderFactory
from memory_engine.testing.openai_server import OpenAIServer


class Row(list[float]):
    """A row as numeric libraries give it."""

    def tolist(self) -> list[float]:
        """Its numbers."""
        return list(self)


def hashed(texts: list[str]) -> Iterable[NumericVector]:
    """What a local model computes."""
    return [Row(HashEmbedder().vector(text)) for text in texts]


class Asymmetric(HashEmbedder):
    """Embeds queries in another way, as if they were marked."""

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """The vectors of the marked texts."""
        return await self.embed([f"query: {text}" for text in texts])


class TestHashEmbedder(EmbedderContract):
    """The one for tests."""

    @pytest.fixture
    def make_embedder(self) -> EmbedderFactory:
        """With its defaults."""
        return HashEmbedder


class TestCachedEmbedder(EmbedderContract):
    """One that keeps fewer vectors than it is asked for."""

    @pytest.fixture
    def make_embedder(self) -> EmbedderFactory:
        """Over one that embeds queries apart."""
        return lambda: CachedEmbedder(Asymmetric(), capacity=2)


class TestLocalEmbedder(EmbedderContract):
    """A model in a thread."""

    @pytest.fixture
    def make_embedder(self) -> EmbedderFactory:
        """Of a dimension that it learns."""
        return lambda: LocalEmbedder("hashed", lambda: hashed)


class TestMiniLMEmbedder(EmbedderContract):
    """The small model, where its extra is installed."""

    @pytest.fixture
    def make_embedder(self) -> EmbedderFactory:
        """By ONNX."""
        try:
            MiniLMEmbedder()
        except MissingExtra as missing:
            pytest.skip(str(missing))
        return MiniLMEmbedder


@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")
# Cancelled at its first step, litellm leaves a coroutine that it has not begun.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine:pytest.PytestUnraisableExceptionWarning")
class TestLiteLLMEmbedder(EmbedderContract):
    """A provider's model, at a server that answers as the provider does."""

    @pytest.fixture
    async def make_embedder(self) -> AsyncIterator[EmbedderFactory]:
        """At a server of the test's own."""
        async with OpenAIServer() as server:
            yield lambda: LiteLLMEmbedder(
                "openai/test", api_base=server.base_url, api_key="any", options=RequestOptions(retries=0)
            )


# what the contract finds


class Backwards(HashEmbedder):
    """The right vectors, in another order."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """The last text's first."""
        return (await super().embed(texts))[::-1]


class Skipping(HashEmbedder):
    """No vector for a text of nothing."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Of the others."""
        return await super().embed([text for text in texts if text.strip()])


class NotANumber(HashEmbedder):
    """As a mean over no tokens is."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Of a text of nothing, no numbers."""
        found = await super().embed(texts)
        return [vector if text else [float("nan")] * 256 for text, vector in zip(texts, found, strict=True)]


class Strict(HashEmbedder):
    """Takes only texts that can be encoded."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Fails at half a sign."""
        return await super().embed([text.encode().decode() for text in texts])


class Beside(HashEmbedder):
    """A text's vector depends on the one before it, as where one scale serves a batch."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """With the words of the text before."""
        return await super().embed([f"{before} {text}" for before, text in zip(["", *texts], texts, strict=False)])


class OtherQueries(HashEmbedder):
    """Queries in a space of their own."""

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Of half the numbers."""
        return [vector[:128] for vector in await self.embed(texts)]


class Upside(HashEmbedder):
    """Queries far from what they ask for."""

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """The opposite direction."""
        return [[-number for number in vector] for vector in await self.embed(texts)]


class Shared(HashEmbedder):
    """Calls of the same time share a list."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: Sequence[str] = ()

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """The texts of whoever came last."""
        self._texts = texts
        await asyncio.sleep(0)
        return await super().embed(self._texts)


class OnceClosed(HashEmbedder):
    """Cannot be closed twice."""

    def __init__(self) -> None:
        super().__init__()
        self._open = [True]

    async def aclose(self) -> None:
        """Fails the second time."""
        self._open.pop()


class Stuck(HashEmbedder):
    """Keeps a lock when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._busy = False

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Fails where a call before did not come to its end."""
        if self._busy:
            raise ModelError(self.name, "unavailable", "busy")
        self._busy = True
        await asyncio.sleep(0)
        self._busy = False
        return await super().embed(texts)


FAULTY: dict[str, tuple[EmbedderFactory, str]] = {
    "in another order": (Backwards, "test_each_text_has_its_vector_in_order"),
    "too few": (Skipping, "test_odd_texts_have_vectors"),
    "no numbers": (NotANumber, "test_odd_texts_have_vectors"),
    "half a sign": (Strict, "test_odd_texts_have_vectors"),
    "of a batch": (Beside, "test_a_vector_depends_on_its_text_alone"),
    "queries of another size": (OtherQueries, "test_each_text_has_its_vector_in_order"),
    "queries elsewhere": (Upside, "test_a_question_is_nearest_to_its_answer"),
    "of another call": (Shared, "test_calls_of_the_same_time_do_not_mix"),
    "after cancelling": (Stuck, "test_a_cancelled_call_leaves_it_usable"),
}


@pytest.mark.parametrize(("make", "test"), FAULTY.values(), ids=FAULTY)
async def test_the_contract_finds_a_fault(make: EmbedderFactory, test: str) -> None:
    """Each kind of fault fails the test that is about it."""
    embedder: Embedder = make()
    with pytest.raises((AssertionError, ModelError)):
        await getattr(EmbedderContract(), test)(embedder)


async def test_the_contract_finds_what_cannot_be_closed_twice() -> None:
    """Whoever wraps an embedder may close it too."""
    with pytest.raises(IndexError):
        await EmbedderContract().test_it_may_be_closed_twice(OnceClosed)
