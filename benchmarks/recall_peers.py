"""Lets other engines find the same texts by the same vectors. Runs in their environment.

Each keeps its store in a new folder or in memory, is used as its documentation says, and embeds by looking into a
file of vectors: none asks a model or a network. `python -m benchmarks.recall_peers` reads jobs as JSON lines and
answers each with one. The libraries are imported by name, so that this file can be read where they are not installed.

A job: `peer`; `texts`, a file with one JSON list of texts, and `vectors`, a file of as many vectors (float32, the
lowest byte first); `conversations`, each with `texts` and `questions` as places in that list; `limit`. The answer:
`found`, for each question the texts' numbers within their conversation, best first; `added_ns` in all, `searched_ns`
for each question; or `missing`, why the peer does not run here.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import tempfile
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TextIO

Vectors = dict[str, list[float]]
Add = Callable[[int, str], None]
Search = Callable[[str, int], list[int]]


@dataclass(frozen=True)
class Place:
    """Where a peer puts one conversation, and the vectors of all texts and questions."""

    folder: Path
    vectors: Vectors
    stack: ExitStack

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return len(next(iter(self.vectors.values())))

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The answer of a model."""
        return [self.vectors[text] for text in texts]


@dataclass(frozen=True)
class Store:
    """A peer's store of one conversation. `ready` is called after the last text: where a peer makes an index."""

    add: Add
    search: Search
    ready: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Peer:
    """Another engine: the distribution it comes in, and how its store is opened for one conversation."""

    distribution: str
    open: Callable[[Place], Store]


def open_mem0(place: Place) -> Store:
    """mem0: one memory a text, unchanged (`infer=False`), in its own default store (Qdrant in a folder).

    Its keyword search needs a model from the network, so it searches by vectors alone, as it does then by itself.
    """
    importlib.import_module("qdrant_client")
    embeddings = importlib.import_module("mem0.embeddings.base").EmbeddingBase

    class Looked(embeddings):  # type: ignore[misc, valid-type]
        """Its embedder, answering from the file."""

        def embed(self, text: str, memory_action: str | None = None) -> list[float]:
            return place.vectors[text]

        def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
            return place.embed(texts)

    unused = {"provider": "openai", "config": {"api_key": "unused"}}
    qdrant = {"collection_name": "talk", "embedding_model_dims": place.dimension, "path": str(place.folder / "qdrant")}
    memory = importlib.import_module("mem0").Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": {**qdrant, "on_disk": True}},
            "llm": unused,
            "embedder": unused,
            "history_db_path": str(place.folder / "history.db"),
        }
    )
    place.stack.callback(memory.vector_store.client.close)
    memory.embedding_model = Looked()

    def add(number: int, text: str) -> None:
        memory.add(text, user_id="u", infer=False, metadata={"number": number})

    def search(question: str, limit: int) -> list[int]:
        found = memory.search(question, filters={"user_id": "u"}, top_k=limit, threshold=0.0)
        return [one["metadata"]["number"] for one in found["results"]]

    return Store(add, search)


def open_langgraph_memory(place: Place) -> Store:
    """LangGraph: its store in memory, with an index."""
    store = importlib.import_module("langgraph.store.memory").InMemoryStore(index=_langgraph_index(place))
    return _langgraph(store)


def open_langgraph_sqlite(place: Place) -> Store:
    """LangGraph: its store in SQLite, with an index (sqlite-vec), which needs an SQLite that loads extensions."""
    store_class = importlib.import_module("langgraph.store.sqlite").SqliteStore
    try:
        sqlite = importlib.import_module("pysqlite3.dbapi2")
    except ModuleNotFoundError:
        sqlite = importlib.import_module("sqlite3")
    connection = sqlite.connect(str(place.folder / "peer.db"), check_same_thread=False, isolation_level=None)
    place.stack.callback(connection.close)
    if not hasattr(connection, "enable_load_extension"):
        raise ImportError("this Python's sqlite3 loads no extensions, and pysqlite3 is not installed")
    store = store_class(connection, index=_langgraph_index(place))
    store.setup()
    return _langgraph(store)


def _langgraph_index(place: Place) -> dict[str, object]:
    """The field of the text alone. One of the stores calls it `fields`, the other `text_fields`."""
    return {"dims": place.dimension, "embed": place.embed, "fields": ["text"], "text_fields": ["text"]}


def _langgraph(store: object) -> Store:
    put, find = getattr(store, "put"), getattr(store, "search")  # noqa: B009 - its type is not known here

    def add(number: int, text: str) -> None:
        put(("talk",), str(number), {"text": text})

    def search(question: str, limit: int) -> list[int]:
        return [int(one.key) for one in find(("talk",), query=question, limit=limit)]

    return Store(add, search)


def open_chroma(place: Place) -> Store:
    """Chroma: a collection in a folder, cosine, one `add` a text."""
    chromadb = importlib.import_module("chromadb")
    quiet = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(place.folder), settings=quiet)
    made = client.create_collection("conversation", metadata={"hnsw:space": "cosine"}, embedding_function=None)

    def add(number: int, text: str) -> None:
        made.add(ids=[str(number)], embeddings=[place.vectors[text]], documents=[text])

    def search(question: str, limit: int) -> list[int]:
        found = made.query(query_embeddings=[place.vectors[question]], n_results=limit)
        return [int(number) for number in found["ids"][0]]

    return Store(add, search)


def open_lancedb(place: Place) -> Store:
    """LanceDB: a table in a folder, one `add` a text, then optimized, searched by vectors and words (RRF)."""
    lancedb = importlib.import_module("lancedb")
    database = lancedb.connect(str(place.folder))
    made: list[object] = []

    def add(number: int, text: str) -> None:
        row = [{"number": number, "text": text, "vector": place.vectors[text]}]
        if made:
            getattr(made[0], "add")(row)  # noqa: B009 - its type is not known here
        else:
            made.append(database.create_table("conversation", row))

    def ready() -> None:
        words = importlib.import_module("lancedb.index").FTS()
        getattr(made[0], "create_index")("text", config=words)  # noqa: B009 - as above
        getattr(made[0], "optimize")()  # noqa: B009 - as above

    def search(question: str, limit: int) -> list[int]:
        begun = getattr(made[0], "search")(query_type="hybrid")  # noqa: B009 - as above
        found = begun.vector(place.vectors[question]).text(question).distance_type("cosine").limit(limit).to_list()
        return [one["number"] for one in found]

    return Store(add, search, ready)


PEERS = {
    "mem0 (Qdrant, infer=False)": Peer("mem0ai", open_mem0),
    "LangGraph InMemoryStore": Peer("langgraph-checkpoint", open_langgraph_memory),
    "LangGraph SqliteStore": Peer("langgraph-checkpoint-sqlite", open_langgraph_sqlite),
    "Chroma": Peer("chromadb", open_chroma),
    "LanceDB, hybrid": Peer("lancedb", open_lancedb),
}


def perform(job: dict[str, object]) -> dict[str, object]:
    """Put every conversation into a store of its own, and ask it."""
    texts: list[str] = json.loads(Path(str(job["texts"])).read_text(encoding="utf-8"))
    vectors = _vectors(Path(str(job["vectors"])), texts)
    found: list[list[int]] = []
    searched: list[int] = []
    added = 0
    conversations = job["conversations"]
    assert isinstance(conversations, list)
    for one in conversations:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
            store = PEERS[str(job["peer"])].open(Place(Path(name), vectors, stack))
            begun = perf_counter_ns()
            for number, place in enumerate(one["texts"]):
                store.add(number, texts[place])
            store.ready()
            added += perf_counter_ns() - begun
            for place in one["questions"]:
                begun = perf_counter_ns()
                found.append(store.search(texts[place], int(str(job["limit"]))))
                searched.append(perf_counter_ns() - begun)
    return {"found": found, "added_ns": added, "searched_ns": searched}


def _vectors(path: Path, texts: Sequence[str]) -> Vectors:
    numbers = array("f", path.read_bytes())
    if sys.byteorder == "big":
        numbers.byteswap()
    width = len(numbers) // len(texts)
    return {text: numbers[at * width : (at + 1) * width].tolist() for at, text in enumerate(texts)}


def versions() -> dict[str, str]:
    """The version of each peer's distribution that is installed."""
    found: dict[str, str] = {}
    for name, peer in PEERS.items():
        try:
            found[name] = importlib.metadata.version(peer.distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Say which peers there are, then do one job after the other until there are no more."""
    print(json.dumps(versions()), file=answers, flush=True)
    for line in jobs:
        job = json.loads(line)
        try:
            answer = perform(job)
        except Exception as error:  # whatever a library raises: the report says so, and the next peer has its turn
            answer = {"missing": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """Answer on the standard output, and keep what the libraries print away from it."""
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=home, ANONYMIZED_TELEMETRY="False")
        os.environ.update(HF_HUB_OFFLINE="1", LANCEDB_TELEMETRY="False")
        answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
