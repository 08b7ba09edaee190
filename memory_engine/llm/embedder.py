"""Any provider's embeddings and ranking models, through the litellm package (extra `llm`)."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from memory_engine.errors import ModelError
from memory_engine.llm.litellm import LiteLLMCalls, RequestOptions, batches, sendable
from memory_engine.llm.vectors import Vector


class LiteLLMEmbedder:
    """An `Embedder` by its litellm name (`"openai/text-embedding-3-small"`, `"ollama/nomic-embed-text"`, ...).

    The model's vectors must have `dimension` numbers; if you do not give it, it is learned from
    the first answer, and is 0 before. Without `api_key`, litellm takes the provider's environment
    variable. Raises `MissingExtra` where litellm is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        dimension: int | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        options: RequestOptions = RequestOptions(),  # noqa: B008 - frozen
    ) -> None:
        self._calls = LiteLLMCalls(model, api_base, api_key, options)
        self._dimension = dimension or 0

    @property
    def name(self) -> str:
        """The name given."""
        return self._calls.model

    @property
    def dimension(self) -> int:
        """How many numbers a vector has; 0 before the first answer, if it was not given."""
        return self._dimension

    def __repr__(self) -> str:
        return f"LiteLLMEmbedder({self.name!r})"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a text, in the same order; a blank text has a vector of zeros (providers refuse it).

        Raises `ModelError` where the model could not be reached, refused, or gave other than
        such vectors. One request after the other, `RequestOptions.batch` texts in each.
        """
        said = [place for place, text in enumerate(texts) if text.strip()]
        sent = sendable([texts[place] for place in said], self._calls.options.chars_max)
        if texts and not sent and not self._dimension:
            await self._request(["blank"])
        vectors: list[Vector] = []
        for batch in batches(sent, self._calls.options.batch):
            vectors += await self._request(batch)
        found = dict(zip(said, vectors, strict=True))
        return [found[place] if place in found else [0.0] * self._dimension for place in range(len(texts))]

    async def aclose(self) -> None:
        """Close the connections of this loop's calls, unless another adapter to litellm still uses them."""
        await self._calls.aclose()

    async def _request(self, texts: Sequence[str]) -> list[Vector]:
        return await self._calls.call("aembedding", {"input": list(texts)}, lambda answer: self._read(answer, texts))

    def _read(self, response: Any, texts: Sequence[str]) -> list[Vector]:
        items = [item if isinstance(item, dict) else vars(item) for item in getattr(response, "data", None) or []]
        if len(items) != len(texts):
            raise self._invalid(f"{len(items)} vectors for {len(texts)} texts")
        if all(isinstance(item.get("index"), int) for item in items):
            items.sort(key=lambda item: int(item["index"]))
        vectors: list[Vector] = []
        for item in items:
            vector = item.get("embedding")
            if not isinstance(vector, list) or not all(isinstance(number, int | float) for number in vector):
                raise self._invalid("something that is not a list of numbers")
            expected = self._dimension or len(items[0]["embedding"])
            if not vector or len(vector) != expected:
                raise self._invalid(f"a vector of {len(vector)} numbers instead of {expected}", retryable=False)
            if not all(map(isfinite, vector)):
                raise self._invalid("a number that is not finite")
            vectors.append(vector)
        self._dimension = len(vectors[0])
        return vectors

    def _invalid(self, why: str, *, retryable: bool = True) -> ModelError:
        return ModelError(self.name, "invalid_response", f"it answered with {why}", retryable)


class LiteLLMReranker:
    """A `Reranker` by its litellm name (`"cohere/rerank-v3.5"`, `"jina_ai/..."`, `"hosted_vllm/..."`, ...).

    Without `api_key`, litellm takes the provider's environment variable. Raises `MissingExtra`
    where litellm is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        options: RequestOptions = RequestOptions(),  # noqa: B008 - frozen
    ) -> None:
        self._calls = LiteLLMCalls(model, api_base, api_key, options)

    @property
    def name(self) -> str:
        """The name given."""
        return self._calls.model

    def __repr__(self) -> str:
        return f"LiteLLMReranker({self.name!r})"

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a score for each text, in the order of the texts, as the provider gives it: mostly from 0 to 1.

        A blank text (providers refuse it) has the lowest score of its call, and 0 if all are blank.
        Raises `ModelError`. One request after the other, `RequestOptions.batch` texts in each.
        """
        options = self._calls.options
        said = [place for place, text in enumerate(texts) if text.strip()]
        sent = sendable([texts[place] for place in said], options.chars_max)
        scores: list[float] = []
        for batch in batches(sent, options.batch) if query.strip() else []:
            scores += await self._request(sendable([query], options.chars_max)[0], batch)
        found = dict(zip(said, scores, strict=False))
        least = min(scores, default=0.0)
        return [found.get(place, least) for place in range(len(texts))]

    async def aclose(self) -> None:
        """Close the connections of this loop's calls, unless another adapter to litellm still uses them."""
        await self._calls.aclose()

    async def _request(self, query: str, texts: Sequence[str]) -> list[float]:
        arguments = {"query": query, "documents": list(texts), "top_n": len(texts), "return_documents": False}
        return await self._calls.call("arerank", arguments, lambda answer: self._read(answer, len(texts)))

    def _read(self, response: Any, count: int) -> list[float]:
        """The scores, by the place of the text; results come best first."""
        results = getattr(response, "results", None) or []
        scores: dict[int, float] = {}
        for result in results:
            place, score = result.get("index"), result.get("relevance_score")
            if isinstance(place, int) and isinstance(score, int | float) and isfinite(score):
                scores[place] = float(score)
        if len(results) != count or sorted(scores) != list(range(count)):
            why = f"it answered with {len(scores)} usable scores for {count} texts"
            raise ModelError(self.name, "invalid_response", why, True)
        return [scores[place] for place in range(count)]
