"""LangGraph's own tests of its stores and of its saver in memory, run on those that keep all in an engine."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

import memory_engine
from memory_engine import sync
from memory_engine.integrations.langgraph import MemoryEngineSaver
from memory_engine.integrations.langgraph_store import MemoryEngineStore
from tests.integrations.beside import peer_tests

OPEN: list[sync.Engine] = []
"""The engines that the test that runs has opened."""


class Embedded:
    """Embeddings of LangChain as an embedder."""

    name = "characters"

    def __init__(self, embeddings: Embeddings, dimension: int) -> None:
        self._embeddings = embeddings
        self.dimension = dimension

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text."""
        vectors: list[list[float]] = self._embeddings.embed_documents(list(texts))
        return vectors

    async def aclose(self) -> None:
        """Nothing is open."""


def opened(embedder: Embedded | None = None) -> sync.Engine:
    """An engine on a loop of its own."""
    OPEN.append(sync.open(":memory:", embedder=embedder))
    return OPEN[-1]


class Store(MemoryEngineStore):
    """With the constructor of the peer's, and what its tests call. The engine has the embeddings that it is given."""

    def __init__(self, *, index: dict[str, Any] | None = None) -> None:
        index = index or {}
        own = opened(Embedded(index["embed"], index["dims"]) if index else None)
        made, fields = super().__init__, index.get("fields") or index.get("text_fields") or ("$",)

        async def make(engine: memory_engine.Engine) -> None:
            made(engine, fields=fields)

        own.call(make)

    def setup(self) -> None:
        """There is nothing to set up."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, _: str, *, index: dict[str, Any] | None = None) -> Iterator["Store"]:
        """A store of its own."""
        yield cls(index=index)


class Saver(MemoryEngineSaver):
    """With the constructor of the peer's."""

    def __init__(self, *, serde: Any = None) -> None:
        own = opened()
        made = super().__init__

        async def make(engine: memory_engine.Engine) -> None:
            made(engine, serde=serde)

        own.call(make)


def module(name: str, **names: object) -> None:
    """A module that the peer's tests import, and that is not there."""
    sys.modules[name] = found = ModuleType(name)
    vars(found).update(names)


module("tests.embed_test_utils", **vars(peer_tests("langgraph/embed_test_utils.py")))
module("langgraph.store.sqlite", SqliteStore=Store)
_PARTS = (
    "NS_MATCH_FUNCTION",
    "BaseSqliteStore",
    "SqliteIndexConfig",
    "_escape_glob_literal",
    "_namespace_match_pattern",
)
module("langgraph.store.sqlite.base", **dict.fromkeys(_PARTS, object))

MEMORY = peer_tests("langgraph/test_store.py")
SQLITE = peer_tests("langgraph/test_sqlite_store.py")
SAVER = peer_tests("langgraph/test_memory.py")
vars(MEMORY)["InMemoryStore"] = Store
vars(SAVER)["InMemorySaver"] = Saver
SAVER.MemoryPydantic.__module__ = "tests.test_memory"  # as its tests name it
module("tests.test_memory", **vars(SAVER))
COSINE = "a score is that of this memory's recall, of words, meaning and time, and not the cosine of two vectors"
OWN_PARTS = "parts of its own back end"
LEFT_OUT = {
    "memory: test_vector_store_initialization": "the embedder is the engine's, not the store's",
    "memory: test_embed_with_path": COSINE,
    "sqlite: test_vector_store_initialization": OWN_PARTS,
    "sqlite: test_embed_with_path": COSINE,
    "sqlite: test_embed_with_path_operation_config": COSINE,
    "sqlite: test_scores": COSINE,
    "sqlite: test_nonnull_migrations": OWN_PARTS,
    "sqlite: test_sql_injection_vulnerability": "no filter becomes a part of a statement: every key is allowed",
    "sqlite: test_escape_glob_literal": OWN_PARTS,
    "sqlite: test_namespace_match_pattern": OWN_PARTS,
    "sqlite: test_list_namespaces_prefix_uses_indexable_condition": OWN_PARTS,
    "saver: test_memory_saver": "the engine is what is opened and closed, not the saver",
    "saver: TestInMemorySaverDeltaChannel": OWN_PARTS,
    "saver: TestBaseFallbackGetChannelWrites": OWN_PARTS,
    "saver: TestPreDeltaBlobTerminator": OWN_PARTS,
}
"""By suite and name, each with its reason."""
SUITES = {"memory": MEMORY, "sqlite": SQLITE, "saver": SAVER}
for suite, peer in SUITES.items():
    for name, test in list(vars(peer).items()):
        if name.lower().startswith("test") and f"{suite}: {name}" not in LEFT_OUT:
            globals()[f"{name}_{suite}"] = test


def test_each_test_that_is_left_out_is_there() -> None:
    """None is left out by a name that it no longer has."""
    assert [] == [one for one in LEFT_OUT if not hasattr(SUITES[one.split(": ")[0]], one.split(": ")[1])]


_reset_warned_types = SAVER._reset_warned_types  # a fixture of all tests


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the engines of a test."""
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def store() -> MemoryEngineStore:
    """In place of the store on SQLite."""
    return Store()


@pytest.fixture
def fake_embeddings() -> Embeddings:
    """As in the peer's files."""
    embeddings: Embeddings = MEMORY.CharacterEmbeddings(dims=500)
    return embeddings
