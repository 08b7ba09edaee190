"""A graph that leads to near vectors without looking at all of them (HNSW, Malkov and Yashunin 2016; extra `hnsw`).

hnswlib checks little, and its calls at the same time end the process, so nobody else speaks to it: here every
count is clamped, every label is known, and one owner (`AdaptiveIndex`) lets one call in at a time.
"""

import errno
import importlib
import os
from collections.abc import Iterator, KeysView, Sequence
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memory_engine.errors import MissingExtra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LINKS = 16
"""Of a vector on a level (M)."""
BUILD_EFFORT = 200
"""How many are looked at for the links of a new one (ef_construction)."""
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
        self._index.set_num_threads(1)  # with more, the order of arrival is chance
        self._next = 0
        self._labels: dict[str, int] = {}
        self._entries: dict[int, tuple[bytes, dict[str, None]]] = {}
        self._by_digest: dict[bytes, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._labels

    def __len__(self) -> int:
        return len(self._labels)

    def keys(self) -> KeysView[str]:
        """The keys there are."""
        return self._labels.keys()

    @property
    def is_worn(self) -> bool:
        """Whether more than half of its places are dead: they are walked through, and slow it down."""
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
        except RuntimeError:  # it says so where dead places, or islands, kept it from finding as many
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
        """What its places stand for."""
        return [GraphEntry(label, digest, list(keys)) for label, (digest, keys) in self._entries.items()]

    def load(self, path: Path, entries: Sequence[GraphEntry], places: int) -> bool:
        """Take the places of a file in place of none; whether they are as many as they should be.

        The file must be known to be whole and of this dimension: hnswlib believes all it reads.
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
        """How many places it has, dead ones too."""
        return self._next

    def digest_of(self, key: str) -> bytes:
        """The digest of a key's row. The key is there."""
        return self._entries[self._labels[key]][0]


def row_digests(rows: "NDArray[np.float32]") -> Iterator[bytes]:
    """A digest a row."""
    for row in rows:
        yield blake2b(row.tobytes(), digest_size=DIGEST_BYTES).digest()
