"""The contract of an embedder as a pytest class, for embedders of your own.

    class TestMyEmbedder(EmbedderContract):
        @pytest.fixture
        def make_embedder(self):
            return MyEmbedder

Async tests run on anyio's pytest plug-in. For assertions with details, call
`pytest.register_assert_rewrite("memory_engine.testing")` in a conftest.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from math import hypot
from operator import mul

import pytest

from memory_engine.llm.vectors import Embed, Embedder, Vector, checked_embedder, embedded, query_method

TEXTS = (
    "The flight to Rome costs 90 euros.",
    "My sister plays the cello in an orchestra.",
    "The printer on the second floor is out of paper.",
    "We agreed to meet at noon on Friday.",
)
QUERY = "How much does the flight to Rome cost?"
ODD_TEXTS = ("", " \n", "\ud800", "\x00", "日本語のテキスト", "🙂" * 50, "word " * 20_000, "x" * 50_000)
"""Texts that occur in logs: of nothing, with half a sign, of other scripts, and longer than any model reads."""
COSINE_MIN = 0.98
"""Between two vectors of one text: rounding in batches of other sizes, as models in bytes do it."""

EmbedderFactory = Callable[[], Embedder]


@pytest.mark.anyio
class EmbedderContract:
    """The promises of `memory_engine.llm.vectors.Embedder`.

    `make_embedder` gives a function that makes an embedder. Set `finds_by_words` to False for one whose vectors do
    not bring a question near a text that shares its words.
    """

    finds_by_words = True

    @pytest.fixture
    def make_embedder(self) -> EmbedderFactory:
        """The subclass overrides this fixture."""
        raise NotImplementedError("a subclass of EmbedderContract defines the fixture make_embedder")

    @pytest.fixture
    async def embedder(self, make_embedder: EmbedderFactory) -> AsyncIterator[Embedder]:
        """An embedder that is closed after the test."""
        embedder = make_embedder()
        yield embedder
        await embedder.aclose()

    async def test_it_is_an_embedder(self, make_embedder: EmbedderFactory) -> None:
        """It has all members, and a name that says which model it is: the same for each one made alike."""
        embedder = checked_embedder(make_embedder())
        assert embedder.name
        assert embedder.name == make_embedder().name
        assert embedder.dimension >= 0

    async def test_each_text_has_its_vector_in_order(self, embedder: Embedder) -> None:
        """Of finite numbers, as many as `dimension` says; no texts have no vectors."""
        for embed, is_query in ways(embedder):
            assert [] == list(await embed([]))
            vectors = await embedded(embedder, TEXTS, is_query=is_query)
            assert {embedder.dimension} == {len(vector) for vector in vectors}
            assert embedder.dimension > 0
            assert alike([(await embed([text]))[0] for text in TEXTS], vectors)

    async def test_odd_texts_have_vectors(self, embedder: Embedder) -> None:
        """No text of a log may fail the other texts of its batch."""
        for _, is_query in ways(embedder):
            vectors = await embedded(embedder, [*ODD_TEXTS, *TEXTS], is_query=is_query)
            assert len(ODD_TEXTS) + len(TEXTS) == len(vectors)

    async def test_a_vector_depends_on_its_text_alone(self, embedder: Embedder) -> None:
        """A vector depends neither on the other texts, nor on their number, nor on earlier ones."""
        beside = [*TEXTS, *ODD_TEXTS, *(f"Line {n} of a report that says little." for n in range(40))]
        for embed, _ in ways(embedder):
            together = list(await embed(beside))[: len(TEXTS)]
            alone = [(await embed([text]))[0] for text in TEXTS]
            assert alike(alone, together)

    async def test_calls_of_the_same_time_do_not_mix(self, embedder: Embedder) -> None:
        """Each caller gets the vectors of its own texts."""
        expected = [(await embedder.embed([text]))[0] for text in TEXTS]
        found = await asyncio.gather(*(embedder.embed([text] * 3) for text in TEXTS))
        assert alike(expected, [vectors[1] for vectors in found])

    async def test_a_cancelled_call_leaves_it_usable(self, embedder: Embedder) -> None:
        """The next call is answered."""
        (expected,) = await embedder.embed(TEXTS[:1])
        call = asyncio.ensure_future(embedder.embed([f"{text} {n}" for n in range(20) for text in TEXTS]))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert alike([expected], await embedder.embed(TEXTS[:1]))

    async def test_it_may_be_closed_twice(self, make_embedder: EmbedderFactory) -> None:
        """Also where it was never used."""
        embedder = make_embedder()
        await embedder.aclose()
        await embedder.aclose()

    async def test_a_question_is_nearest_to_its_answer(self, embedder: Embedder) -> None:
        """Queries and texts lie in one space."""
        if not self.finds_by_words:
            pytest.skip("this embedder does not bring texts with the same words together")
        vectors = await embedder.embed(TEXTS)
        (query,) = await (query_method(embedder) or embedder.embed)([QUERY])
        cosines = [cosine(query, vector) for vector in vectors]
        assert cosines[0] == max(cosines)


def ways(embedder: Embedder) -> list[tuple[Embed, bool]]:
    """How it embeds texts, and queries if it has a way of its own, with whether these are queries."""
    own = query_method(embedder)
    return [(embedder.embed, False), *([(own, True)] if own else [])]


def alike(some: Sequence[Vector], others: Sequence[Vector]) -> bool:
    """Whether these are the same vectors, in order, but for rounding."""
    return all(cosine(one, other) >= COSINE_MIN for one, other in zip(some, others, strict=True))


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of two vectors of the same dimension."""
    product: float = sum(map(mul, one, other))
    return product / ((hypot(*one) * hypot(*other)) or 1.0)
