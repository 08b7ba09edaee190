"""A graph that leads to near vectors without looking at all of them (HNSW, Malkov and Yashunin 2016; extra `hnsw`).

hnswlib checks little, and concurrent calls crash the process, so only this module calls it: here every count is
clamped, every label is known, and one owner (`AdaptiveIndex`) lets one call in at a time.

In files a graph is a cache, used only if every byte is as it was written.

`path` is the head: a mark, a digest, and what the graph's places stand for. `path`.graph holds the places, as
hnswlib writes them; the head has its digest. Each is written beside its place and moved there; if the process ends
between the two, the head refuses the other's new bytes.
"""

import contextlib
import errno
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, KeysView, Sequence
from hashlib import blake2b, file_digest
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from attrs import frozen

from memory_engine.errors import MissingExtra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


LINKS = 16
"""Links of a vector on a level (M)."""
BUILD_EFFORT = 200
"""Vectors examined for the links of a new one (ef_construction)."""
SEED = 100
ROOM_MIN = 1024
DIGEST_BYTES = 16


class GraphEntry(msgspec.Struct, frozen=True, array_like=True):
    """A vector of the graph: its number there, the digest of its row, and the keys that have it."""

    label: int
    digest: bytes
    keys: list[str]


class HnswGraph:
    """Keys and rows of unit length. The same calls in the same order give the same answers, and the same file.

    Keys with the same row share a place: as places of their own they would be each other's
    nearest, and an island. Raises `MissingExtra` without hnswlib.
    """

    def __init__(self, dimension: int) -> None:
        try:
            self._library = importlib.import_module("hnswlib")  # it has no types
        except ModuleNotFoundError as error:
            raise MissingExtra("a graph of vectors", "hnsw") from error
        self._dimension = dimension
        self._index = self._library.Index("ip", dimension)  # of rows of unit length it is the cosine
        self._index.init_index(ROOM_MIN, M=LINKS, ef_construction=BUILD_EFFORT, random_seed=SEED)
        self._index.set_num_threads(1)  # with more threads, the order of arrival is chance
        self._next = 0
        self._labels: dict[str, int] = {}
        self._entries: dict[int, tuple[bytes, dict[str, None]]] = {}
        self._by_digest: dict[bytes, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._labels

    def __len__(self) -> int:
        return len(self._labels)

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._labels.keys()

    @property
    def is_worn(self) -> bool:
        """Whether more than half of its places are dead: searches still walk through these, which slows them down."""
        return self._next - len(self._entries) > max(len(self._entries), ROOM_MIN)

    def add(self, keys: Sequence[str], rows: "NDArray[np.float32]") -> None:
        """Add keys that are not there yet, each with its row."""
        new_labels, places = [], []
        for place, (key, digest) in enumerate(zip(keys, row_digests(rows), strict=True)):
            label = self._by_digest.get(digest)
            if label is None:
                label = self._by_digest[digest] = self._next
                self._next += 1
                self._entries[label] = (digest, {})
                new_labels.append(label)
                places.append(place)
            self._entries[label][1][key] = None
            self._labels[key] = label
        if new_labels:
            room = self._index.get_max_elements()
            if self._next > room:
                self._index.resize_index(max(2 * room, self._next))
            self._index.add_items(rows[places], new_labels, num_threads=1)

    def remove(self, key: str) -> None:
        """Remove a key, if it is there; its place dies with the last key that has it."""
        label = self._labels.pop(key, None)
        if label is None:
            return
        digest, keys = self._entries[label]
        del keys[key]
        if not keys:
            del self._entries[label], self._by_digest[digest]
            self._index.mark_deleted(label)

    def nearest(self, unit: "NDArray[np.float32]", count: int, *, effort: int) -> list[str] | None:
        """Keys of (nearly) the nearest `count` places, nearest first, and `None` where it found too few.

        `unit` is a matrix of one row, finite and of the graph's dimension, of unit length or zero. `effort`:
        how many places are in view. Of a place with very many keys come the first `count`.
        """
        count = min(count, len(self._entries))
        if not count:
            return []
        self._index.set_ef(effort)
        try:
            labels, _ = self._index.knn_query(unit, k=count, num_threads=1)
        except RuntimeError:  # it raises where dead places, or islands, kept it from finding as many
            return None
        found: list[str] = []
        for label in labels[0].tolist():
            keys = self._entries[label][1]
            found += keys if len(keys) <= count else nsmallest(count, keys)
        return found

    def save(self, path: Path) -> None:
        """Write the places to a file. Raises `OSError` where it does not come out whole: hnswlib says nothing."""
        self._index.save_index(str(path))
        size = path.stat().st_size if path.exists() else -1
        if size != self._index.index_file_size():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def entries(self) -> list[GraphEntry]:
        """The keys and digests that its places stand for."""
        return [GraphEntry(label, digest, list(keys)) for label, (digest, keys) in self._entries.items()]

    def load(self, path: Path, entries: Sequence[GraphEntry], places: int) -> bool:
        """Load the places of a file into an empty graph. Returns whether their number is as expected.

        The file must be known to be whole and of this dimension: hnswlib trusts every byte.
        """
        self._index = self._library.Index("ip", self._dimension)
        try:
            self._index.load_index(str(path))
        except RuntimeError:
            return False
        self._index.set_num_threads(1)
        if self._index.get_current_count() != places:
            return False
        self._next = places
        self._entries = {entry.label: (entry.digest, dict.fromkeys(entry.keys)) for entry in entries}
        self._by_digest = {entry.digest: entry.label for entry in entries}
        self._labels = {key: entry.label for entry in entries for key in entry.keys}
        return True

    @property
    def places(self) -> int:
        """The number of its places, dead ones included."""
        return self._next

    def digest_of(self, key: str) -> bytes:
        """The digest of a key's row. The key must be present."""
        return self._entries[self._labels[key]][0]


def row_digests(rows: "NDArray[np.float32]") -> Iterator[bytes]:
    """One digest for each row."""
    for row in rows:
        yield blake2b(row.tobytes(), digest_size=DIGEST_BYTES).digest()


MARK = b"memory_engine graph 1\n"
"""Names the format: a changed format gets another mark."""
HEAD_DIGEST_BYTES = 32


@frozen
class Origin:
    """The origin of a graph: the embedder's name, and a caller's stamp. A graph of another origin is not used."""

    model: str
    stamp: str = ""


@frozen
class UnusableGraph:
    """The reason why a graph in files is not used; it is built again."""

    reason: Literal["missing", "damaged", "origin", "dimension", "library"]
    why: str


class GraphHead(msgspec.Struct, frozen=True):
    """The content of the head, after mark and digest."""

    library: str
    model: str
    stamp: str
    dimension: int
    places: int
    graph_bytes: int
    graph_digest: bytes
    entries: list[GraphEntry]


def write_graph(path: Path, origin: Origin, dimension: int, graph: HnswGraph | None) -> None:
    """Write a graph, or remove the files of an older one. Raises `OSError`."""
    if graph is None:
        path.unlink(missing_ok=True)
        _places_of(path).unlink(missing_ok=True)
        return
    with _moved_into(_places_of(path)) as draft:
        graph.save(draft)
        size, digest = draft.stat().st_size, _file_digest(draft)
    head = GraphHead(
        library=_library(),
        model=origin.model,
        stamp=origin.stamp,
        dimension=dimension,
        places=graph.places,
        graph_bytes=size,
        graph_digest=digest,
        entries=graph.entries(),
    )
    body = msgspec.msgpack.encode(head)
    with _moved_into(path) as draft:
        draft.write_bytes(MARK + _digest(body) + body)


def read_graph(path: Path, origin: Origin, dimension: int) -> HnswGraph | UnusableGraph:
    """The graph as it was written, or the reason why not. Raises `OSError` for a file that cannot be read."""
    try:
        head = _head(path.read_bytes())
        if isinstance(head, UnusableGraph):
            return head
        found = (head.model, head.stamp)
        if found != (origin.model, origin.stamp):
            return UnusableGraph("origin", f"it was made of {found}, not of {(origin.model, origin.stamp)}")
        if head.dimension != dimension:
            return UnusableGraph("dimension", f"its vectors have {head.dimension} numbers, not {dimension}")
        graph = HnswGraph(dimension)
        if head.library != _library():
            return UnusableGraph("library", f"it was written by {head.library}; here is {_library()}")
        places = _places_of(path)
        if places.stat().st_size != head.graph_bytes or _file_digest(places) != head.graph_digest:
            return UnusableGraph("damaged", f"{places} is not what {path} was written for")
    except FileNotFoundError as error:
        return UnusableGraph("missing", str(error))
    except MissingExtra as error:
        return UnusableGraph("library", str(error))
    if not graph.load(places, head.entries, head.places):
        return UnusableGraph("damaged", f"{places} does not hold what {path} says")
    return graph


def _head(content: bytes) -> GraphHead | UnusableGraph:
    body = content[len(MARK) + HEAD_DIGEST_BYTES :]
    if content != MARK + _digest(body) + body:
        return UnusableGraph("damaged", "its head is cut off, changed, or of another version")
    try:
        return msgspec.msgpack.decode(body, type=GraphHead)
    except msgspec.MsgspecError as error:
        return UnusableGraph("damaged", str(error))


@contextlib.contextmanager
def _moved_into(place: Path) -> Iterator[Path]:
    """A new file beside a path. When its writer is done it is synced and moved there; on an error it is removed."""
    number, name = tempfile.mkstemp(prefix=f"{place.name}.", dir=place.parent)
    os.close(number)
    draft = Path(name)
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def _places_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.graph")


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=HEAD_DIGEST_BYTES)).digest()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=HEAD_DIGEST_BYTES).digest()


def _library() -> str:
    """The writer of the places: their numbers have this machine's byte order and sizes."""
    from importlib.metadata import version  # a reader of mail headers, zip and CSV files with it

    return f"hnswlib {version('hnswlib')}, {sys.byteorder}-endian, {sys.maxsize.bit_length() + 1} bits"
