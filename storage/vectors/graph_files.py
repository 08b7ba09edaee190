"""Graphs in files: a cache, used only if every byte matches its digest.

`path` is the head: a mark, a digest, and the keys of the graph's places. `path`.graph holds the places, as its
library writes them; the head has its digest. Each is written to a temporary file and moved into place; if the process
ends between the two moves, the head refuses the other's new bytes.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Literal

import msgspec
from attrs import frozen

from memory_engine.errors import MissingExtra
from memory_engine.storage.vectors.graph import Graph, GraphEntry
from memory_engine.storage.vectors.hnsw import HnswGraph
from memory_engine.storage.vectors.usearch import SmallUsearchGraph, UsearchGraph

LIBRARIES: dict[str, type[Graph]] = {one.library: one for one in (HnswGraph, UsearchGraph, SmallUsearchGraph)}
"""The graphs by their libraries, the one that is preferred first."""
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


def write_graph(path: Path, origin: Origin, dimension: int, graph: Graph | None) -> None:
    """Write a graph, or remove the files of an older one. Raises `OSError`."""
    if graph is None:
        path.unlink(missing_ok=True)
        _places_of(path).unlink(missing_ok=True)
        return
    with _moved_into(_places_of(path)) as draft:
        graph.save(draft)
        size, digest = draft.stat().st_size, _file_digest(draft)
    head = GraphHead(
        library=_written_by(graph.library),
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
        draft.write_bytes(MARK + _body_digest(body) + body)


def read_graph(path: Path, origin: Origin, dimension: int) -> Graph | UnusableGraph:
    """The graph, or the reason why it was refused. Raises `OSError` for a file that cannot be read."""
    try:
        head = _parse_head(path.read_bytes())
        if isinstance(head, UnusableGraph):
            return head
        found = (head.model, head.stamp)
        if found != (origin.model, origin.stamp):
            return UnusableGraph("origin", f"it was made of {found}, not of {(origin.model, origin.stamp)}")
        if head.dimension != dimension:
            return UnusableGraph("dimension", f"its vectors have {head.dimension} numbers, not {dimension}")
        graph = LIBRARIES.get(head.library.partition(" ")[0], HnswGraph)(dimension)
        if head.library != _written_by(graph.library):
            return UnusableGraph("library", f"it was written by {head.library}; here is {_written_by(graph.library)}")
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


def _parse_head(content: bytes) -> GraphHead | UnusableGraph:
    body = content[len(MARK) + HEAD_DIGEST_BYTES :]
    if content != MARK + _body_digest(body) + body:
        return UnusableGraph("damaged", "its head is cut off, changed, or of another version")
    try:
        return msgspec.msgpack.decode(body, type=GraphHead)
    except msgspec.MsgspecError as error:
        return UnusableGraph("damaged", str(error))


@contextlib.contextmanager
def _moved_into(place: Path) -> Iterator[Path]:
    """A new temporary file for a path. Its writer done, it is synced and moved there; on an error it is removed."""
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


def _body_digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=HEAD_DIGEST_BYTES).digest()


def _written_by(library: str) -> str:
    """The writer of the places: their numbers have this machine's byte order and sizes."""
    from importlib.metadata import version  # a reader of mail headers, zip and CSV files with it

    return (
        f"{library} {version(library.partition('-')[0])}, {sys.byteorder}-endian, {sys.maxsize.bit_length() + 1} bits"
    )


def new_graph(dimension: int, library: str = "") -> Graph:
    """An empty graph of a library, or of the first that is installed. Raises `MissingExtra` for none."""
    missing = None
    for one in [LIBRARIES[library]] if library else LIBRARIES.values():
        try:
            return one(dimension)
        except MissingExtra as error:
            missing = error
    assert missing is not None
    raise missing
