"""A graph of vectors in files: a cache that is believed only where every byte is as it was written.

`path` is the head: a mark, a digest, and what the graph's places stand for. `path`.graph holds the places, as
hnswlib writes them; the head has its digest. Each is written beside its place and moved there; if the process ends
between the two, the head refuses the other's new bytes.
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
from memory_engine.storage.hnsw import GraphEntry, HnswGraph

MARK = b"memory_engine graph 1\n"
"""Names the format: another one is another mark."""
HEAD_DIGEST_BYTES = 32


@frozen
class Origin:
    """What a graph is made of: the embedder's name, and a stamp of the caller's. Of another, it is not used."""

    model: str
    stamp: str = ""


@frozen
class Unusable:
    """Why a graph in files is not used; it is built again."""

    reason: Literal["missing", "damaged", "origin", "dimension", "library"]
    why: str


class Head(msgspec.Struct, frozen=True):
    """What stands in the head, after mark and digest."""

    library: str
    model: str
    stamp: str
    dimension: int
    places: int
    graph_bytes: int
    graph_digest: bytes
    entries: list[GraphEntry]


def write_graph(path: Path, origin: Origin, dimension: int, graph: HnswGraph | None) -> None:
    """Write a graph, or remove what is there of an older one. Raises `OSError`."""
    if graph is None:
        path.unlink(missing_ok=True)
        _places_of(path).unlink(missing_ok=True)
        return
    with _moved_into(_places_of(path)) as draft:
        graph.save(draft)
        size, digest = draft.stat().st_size, _file_digest(draft)
    head = Head(
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


def read_graph(path: Path, origin: Origin, dimension: int) -> HnswGraph | Unusable:
    """The graph as it was written, or why not. Raises `OSError` where a file is there and cannot be read."""
    try:
        head = _head(path.read_bytes())
        if isinstance(head, Unusable):
            return head
        found = (head.model, head.stamp)
        if found != (origin.model, origin.stamp):
            return Unusable("origin", f"it was made of {found}, not of {(origin.model, origin.stamp)}")
        if head.dimension != dimension:
            return Unusable("dimension", f"its vectors have {head.dimension} numbers, not {dimension}")
        graph = HnswGraph(dimension)
        if head.library != _library():
            return Unusable("library", f"it was written by {head.library}; here is {_library()}")
        places = _places_of(path)
        if places.stat().st_size != head.graph_bytes or _file_digest(places) != head.graph_digest:
            return Unusable("damaged", f"{places} is not what {path} was written for")
    except FileNotFoundError as error:
        return Unusable("missing", str(error))
    except MissingExtra as error:
        return Unusable("library", str(error))
    if not graph.load(places, head.entries, head.places):
        return Unusable("damaged", f"{places} does not hold what {path} says")
    return graph


def _head(content: bytes) -> Head | Unusable:
    body = content[len(MARK) + HEAD_DIGEST_BYTES :]
    if content != MARK + _digest(body) + body:
        return Unusable("damaged", "its head is cut off, changed, or of another version")
    try:
        return msgspec.msgpack.decode(body, type=Head)
    except msgspec.MsgspecError as error:
        return Unusable("damaged", str(error))


@contextlib.contextmanager
def _moved_into(place: Path) -> Iterator[Path]:
    """A new file beside a place; it is moved there, safe on disk, when its writer is done, and else removed."""
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
    """Who wrote the places: its numbers are of this machine's kind."""
    from importlib.metadata import version  # a reader of mail headers, zip and CSV files with it

    return f"hnswlib {version('hnswlib')}, {sys.byteorder}-endian, {sys.maxsize.bit_length() + 1} bits"
