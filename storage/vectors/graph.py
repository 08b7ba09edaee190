"""A graph that leads to near vectors without looking at all of them (HNSW, Malkov and Yashunin 2016), by any library.

The libraries check little, and concurrent calls may crash the process, so only their graphs call them: here every count
is clamped, every label is known, and one owner (`AdaptiveIndex`) lets one call in at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, KeysView, Sequence
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


LINKS = 16
"""Links of a vector on a level (M)."""
BUILD_EFFORT = 200
"""Vectors examined for the links of a new one (ef_construction)."""
ROOM_MIN = 1024
DIGEST_BYTES = 16


class GraphEntry(msgspec.Struct, frozen=True, array_like=True):
    """A vector of the graph: its number there, the digest of its row, and the keys that have it."""

    label: int
    digest: bytes
    keys: list[str]


class Graph(ABC):
    """Keys and rows of unit length. The same calls in the same order give the same answers, and the same file.

    Keys with the same row share a place: as places of their own they would be each other's
    nearest, and an island. Raises `MissingExtra` without its library.
    """

    library: ClassVar[str]
    """The name of its package, and of the form of its numbers where there are several; files bear it."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._next = 0
        self._labels: dict[str, int] = {}
        self._entries: dict[int, tuple[bytes, dict[str, None]]] = {}
        self._by_digest: dict[bytes, int] = {}

    @abstractmethod
    def _insert(self, labels: Sequence[int], rows: "NDArray[np.float32]") -> None:
        """Add places under new labels."""

    @abstractmethod
    def _kill(self, label: int) -> None:
        """Let a place be found no more."""

    @abstractmethod
    def _near(self, unit: "NDArray[np.float32]", count: int, effort: int) -> list[int] | None:
        """The labels of (nearly) the nearest places, nearest first; `None` where it found too few."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the places to a file. Raises `OSError` where it does not come out whole."""

    @abstractmethod
    def _opened(self, path: Path) -> int:
        """Take the places of a file; how many there are, dead ones included. -1 for a file that cannot be read."""

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
            self._insert(new_labels, rows[places])

    def remove(self, key: str) -> None:
        """Remove a key, if present; its place dies with the last key that uses it."""
        label = self._labels.pop(key, None)
        if label is None:
            return
        digest, keys = self._entries[label]
        del keys[key]
        if not keys:
            del self._entries[label], self._by_digest[digest]
            self._kill(label)

    def nearest(self, unit: "NDArray[np.float32]", count: int, *, effort: int) -> list[str] | None:
        """Keys of (nearly) the nearest `count` places, nearest first, and `None` where it found too few.

        `unit` is a matrix of one row, finite and of the graph's dimension, of unit length or zero. `effort`:
        how many places are in view. Of a place with very many keys come the first `count`.
        """
        count = min(count, len(self._entries))
        if not count:
            return []
        labels = self._near(unit, count, effort)
        if labels is None:
            return None
        found: list[str] = []
        for label in labels:
            keys = self._entries[label][1]
            found += keys if len(keys) <= count else nsmallest(count, keys)
        return found

    def entries(self) -> list[GraphEntry]:
        """The key and digest of each place."""
        return [GraphEntry(label, digest, list(keys)) for label, (digest, keys) in self._entries.items()]

    def load(self, path: Path, entries: Sequence[GraphEntry], places: int) -> bool:
        """Load the places of a file into an empty graph. Returns whether their number is as expected.

        The file must be known to be whole and of this dimension: a library trusts every byte.
        """
        if self._opened(path) != self.counted(len(entries), places):
            return False
        self._next = places
        self._entries = {entry.label: (entry.digest, dict.fromkeys(entry.keys)) for entry in entries}
        self._by_digest = {entry.digest: entry.label for entry in entries}
        self._labels = {key: entry.label for entry in entries for key in entry.keys}
        return True

    @staticmethod
    def counted(alive: int, places: int) -> int:
        """The expected result of `_opened` for a number of live places among all that ever existed."""
        del alive
        return places

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
