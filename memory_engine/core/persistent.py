"""Two small persistent structures: a changed value shares its unchanged parts with the old one.

Both are split into about √n pieces. A draft copies the pieces it touches, once, and
shares the rest; freezing gives the next value. For a state of 20 chunks that is one small
copy, for one of 100,000 two copies of some hundred pointers.

Order keys: byte strings between which there is always another, so that a move writes one row.

A key is an integer part (a length byte, then the big-endian digits, so that appending
gives keys of constant length for a long time) and a fraction that never ends in zero.
Compared as bytes. The scheme is fractional indexing (D. Greenspan, "Implementing
Fractional Indexing", 2020) over base 256.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

import msgspec

V = TypeVar("V")

_BLOCK = 256


class Keyed(Protocol):
    """An item that knows its place."""

    @property
    def key(self) -> bytes:
        """The order key."""
        ...


K = TypeVar("K", bound=Keyed)


class PersistentMap(msgspec.Struct, Generic[V], frozen=True, eq=False):
    """An immutable mapping from str; the order of its keys is not defined and never used.

    `slot` gives the number by which a key finds its bucket. Keys that are put together share more with older values
    where their numbers are the same.
    """

    slot: Callable[[str], int] = hash
    _buckets: tuple[dict[str, V], ...] = ({},)
    _size: int = 0

    def __len__(self) -> int:
        return self._size

    def get(self, key: str) -> V | None:
        """The value, or `None`."""
        return self._buckets[self.slot(key) & (len(self._buckets) - 1)].get(key)

    def keys(self) -> Iterator[str]:
        """All keys."""
        return chain.from_iterable(self._buckets)

    def near(self, keys: Iterable[str]) -> Iterator[str]:
        """The keys that share a bucket with any of these."""
        mask = len(self._buckets) - 1
        return chain.from_iterable(self._buckets[at] for at in {self.slot(key) & mask for key in keys})

    def draft(self) -> "MapDraft[V]":
        """A mutable copy that shares everything."""
        return MapDraft(self)

    def changed(self, changes: Mapping[str, V | None]) -> "PersistentMap[V]":
        """With these values put (`None`: removed). Copies touched buckets; splits all as they outgrow their number."""
        buckets = list(self._buckets)
        mask = len(buckets) - 1
        size, slot = self._size, self.slot
        copied: set[int] = set()
        for key, value in changes.items():
            at = slot(key) & mask
            if at not in copied:
                buckets[at] = buckets[at].copy()
                copied.add(at)
            bucket = buckets[at]
            size -= key in bucket
            if value is None:
                bucket.pop(key, None)
            else:
                bucket[key] = value
                size += 1
        if size > 64 * len(buckets) and size > 4 * len(buckets) ** 2:
            buckets = _split(buckets, size, slot)
        return PersistentMap(slot, tuple(buckets), size)


def _split(buckets: list[dict[str, V]], size: int, slot: Callable[[str], int]) -> list[dict[str, V]]:
    count = len(buckets)
    while size > 64 * count and size > 4 * count**2:
        count *= 4
    grown: list[dict[str, V]] = [{} for _ in range(count)]
    for bucket in buckets:
        for key, value in bucket.items():
            grown[slot(key) & (count - 1)][key] = value
    return grown


class MapDraft(msgspec.Struct, Generic[V], frozen=True, eq=False):
    """A `PersistentMap` being changed: the changes, over the old value."""

    _base: PersistentMap[V]
    _changes: dict[str, V | None] = msgspec.field(default_factory=dict)

    def get(self, key: str) -> V | None:
        """The value, or `None`."""
        changes = self._changes
        return changes[key] if key in changes else self._base.get(key)

    def keys(self) -> Iterator[str]:
        """All keys."""
        return self._with_changes(self._base.keys())

    def near(self, keys: Iterable[str]) -> Iterator[str]:
        """The keys that share a bucket with any of these, and all that were put into this draft."""
        return self._with_changes(self._base.near(keys))

    def _with_changes(self, keys: Iterable[str]) -> Iterator[str]:
        yield from (key for key in keys if key not in self._changes)
        yield from (key for key, value in self._changes.items() if value is not None)

    def set(self, key: str, value: V) -> None:
        """Put a value."""
        self._changes[key] = value

    def drop(self, key: str) -> None:
        """Remove a key if it is there."""
        self._changes[key] = None

    def drop_all(self, keys: Mapping[str, None]) -> None:
        """Remove keys."""
        self._changes.update(keys)

    def let_go(self) -> None:
        """Drop the changes one by one: see `SequenceDraft.let_go`."""
        while self._changes:
            self._changes.popitem()

    def freeze(self) -> PersistentMap[V]:
        """The changed value. The draft may be used no more."""
        return self._base.changed(self._changes) if self._changes else self._base


class Splice(Generic[K]):
    """A run of items that replaces another. `at_end`: nothing follows it.

    `kept_behind`: the number of items of the same blocks behind it that stayed.
    """

    __slots__ = ("added", "at_end", "kept_behind", "removed")

    def __init__(self, removed: Sequence[K], added: Sequence[K], kept_behind: int) -> None:
        self.removed = removed
        self.added = added
        self.kept_behind = kept_behind
        self.at_end = False


def _spliced(blocks: Sequence[Sequence[K]], added: Sequence[K]) -> Splice[K]:
    """The difference between blocks and the items in their place."""
    removed = [item for block in blocks for item in block]
    most = min(len(removed), len(added))
    first = next((n for n in range(most) if removed[n] is not added[n]), most)
    last = next((n for n in range(most - first) if removed[-1 - n] is not added[-1 - n]), most - first)
    return Splice(removed[first : len(removed) - last], added[first : len(added) - last], last)


class SortedSequence(msgspec.Struct, Generic[K], frozen=True, eq=False):
    """An immutable sequence of items, ordered by their unique keys."""

    _blocks: tuple[tuple[K, ...], ...] = ()

    def __iter__(self) -> Iterator[K]:
        for block in self._blocks:
            yield from block

    def __reversed__(self) -> Iterator[K]:
        for block in reversed(self._blocks):
            yield from reversed(block)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def since(self, other: "SortedSequence[K]") -> "list[Splice[K]]":
        """The changes since another, in order: fast when most blocks are shared."""
        places = {id(block): n for n, block in enumerate(other._blocks)}
        found: list[Splice[K]] = []
        added: list[K] = []
        passed = 0
        for block in self._blocks:
            shared = places.get(id(block))
            if shared is None:
                added.extend(block)
                continue
            if added or shared > passed:
                found.append(_spliced(other._blocks[passed:shared], added))
                added = []
            passed = shared + 1
        last = _spliced(other._blocks[passed:], added)
        last.at_end = not last.kept_behind
        return [one for one in (*found, last) if one.removed or one.added]

    def next_key(self) -> bytes:
        """The key of an item that is put behind all others."""
        return key_after(self._blocks[-1][-1].key) if self._blocks else ZERO

    def appended(self, item: K) -> "SortedSequence[K]":
        """With an item behind all others. Copies the last block, or halves it where it is full."""
        if not self._blocks:
            return SortedSequence(((item,),))
        *others, last = self._blocks
        if len(last) >= 2 * _BLOCK:
            return SortedSequence((*others, last[:_BLOCK], (*last[_BLOCK:], item)))
        return SortedSequence((*others, (*last, item)))

    def draft(self) -> "SequenceDraft[K]":
        """A mutable copy that shares every block until it is touched."""
        return SequenceDraft(list(self._blocks))


class SequenceDraft(msgspec.Struct, Generic[K], eq=False):
    """A `SortedSequence` being changed: its blocks, and which of them are lists of its own."""

    _blocks: list[tuple[K, ...] | list[K]] = msgspec.field(default_factory=list)
    _owned: list[int] = msgspec.field(default_factory=list)

    def __iter__(self) -> Iterator[K]:
        for block in self._blocks:
            yield from block

    def __reversed__(self) -> Iterator[K]:
        for block in reversed(self._blocks):
            yield from reversed(block)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def first_key(self) -> bytes | None:
        """The lowest key."""
        return self._blocks[0][0].key if self._blocks else None

    def last_key(self) -> bytes | None:
        """The highest key."""
        return self._blocks[-1][-1].key if self._blocks else None

    def next_key(self) -> bytes:
        """The key of an item that is put behind all others."""
        return key_after(self._blocks[-1][-1].key) if self._blocks else ZERO

    def key_before(self, key: bytes) -> bytes | None:
        """The key of the item before the one with `key`."""
        at, index = self._find(key)
        if index:
            return self._blocks[at][index - 1].key
        return self._blocks[at - 1][-1].key if at else None

    def key_after(self, key: bytes) -> bytes | None:
        """The key of the item after the one with `key`."""
        at, index = self._find(key)
        if index + 1 < len(self._blocks[at]):
            return self._blocks[at][index + 1].key
        return self._blocks[at + 1][0].key if at + 1 < len(self._blocks) else None

    def insert(self, item: K) -> None:
        """Put an item at its key's place."""
        if not self._blocks:
            self._blocks.append([item])
            self._owned.append(0)
            return
        at = self._block_of(item.key)
        block = self._own(at)
        if block[-1].key < item.key:
            block.append(item)
        else:
            block.insert(bisect_right(block, item.key, key=_key), item)
        if len(block) > 2 * _BLOCK:
            self._split(at, block)

    def append(self, item: K) -> None:
        """Put an item behind all others."""
        block = self._blocks[-1] if self._blocks else ()
        if isinstance(block, tuple) or len(block) >= 2 * _BLOCK:
            self.insert(item)
        else:
            block.append(item)

    def remove(self, key: bytes) -> None:
        """Take the item with `key` out."""
        at, index = self._find(key)
        block = self._own(at)
        del block[index]
        if not block:
            self._drop(at)

    def remove_all(self, keys: Sequence[bytes]) -> None:
        """Take the items with these keys out: a block at a time where they are several."""
        if len(keys) == 1:
            self.remove(keys[0])
            return
        ordered, gone = sorted(keys), frozenset(keys)
        left = len(ordered)
        while left:
            at = self._block_of(ordered[left - 1])
            left = bisect_left(ordered, self._blocks[at][0].key, 0, left)
            block = self._own(at)
            block[:] = [item for item in block if item.key not in gone]
            if not block:
                self._drop(at)

    def _drop(self, at: int) -> None:
        del self._blocks[at]
        self._owned = [i for i, b in enumerate(self._blocks) if isinstance(b, list)]

    def replace(self, item: K) -> None:
        """Put another item at the same key."""
        at, index = self._find(item.key)
        self._own(at)[index] = item

    def let_go(self) -> None:
        """Drop the items a block at a time: freed by one call, many keep other threads from the interpreter."""
        while self._blocks:
            self._blocks.pop()
        self._owned.clear()

    def freeze(self) -> SortedSequence[K]:
        """The changed value. The draft may not be used any more."""
        for at in self._owned:
            self._blocks[at] = tuple(self._blocks[at])
        blocks = tuple(self._blocks)  # none of them is a list any more
        return SortedSequence(blocks)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def _block_of(self, key: bytes) -> int:
        if len(self._blocks) == 1 or self._blocks[-1][0].key <= key:
            return len(self._blocks) - 1
        return max(0, bisect_right(self._blocks, key, key=_first_key) - 1)

    def _find(self, key: bytes) -> tuple[int, int]:
        at = self._block_of(key)
        return at, bisect_right(self._blocks[at], key, key=_key) - 1

    def _own(self, at: int) -> list[K]:
        block = self._blocks[at]
        if not isinstance(block, list):
            block = list(block)
            self._blocks[at] = block
            self._owned.append(at)
        return block

    def _split(self, at: int, block: list[K]) -> None:
        self._blocks[at : at + 1] = [block[:_BLOCK], block[_BLOCK:]]
        self._owned = [i for i, b in enumerate(self._blocks) if isinstance(b, list)]


_key: Callable[[Keyed], bytes] = attrgetter("key")


def _first_key(block: Sequence[Keyed]) -> bytes:
    return block[0].key


ZERO = b"\x80"
"""The first key of an empty sequence: integer 0, no fraction."""


_OFFSETS: tuple[int, ...] = tuple((256**size - 1) // 255 for size in range(10))
"""How many numbers take fewer than `size` digit bytes: 0, 1, 257, …"""


_DIGITS = tuple(bytes((digit,)) for digit in range(256))


def key_after(key: bytes) -> bytes:
    """The next integer key: shorter than a key between, and the one appending needs."""
    if len(key) == key[0] - 0x7F > 1 and key[-1] < 0xFF:
        return key[:-1] + _DIGITS[key[-1] + 1]  # a whole number whose last digit has room: almost always
    return _encode(_integer(key)[0] + 1)


def key_before(key: bytes) -> bytes:
    """The integer key before `key`."""
    number, size = _integer(key)
    return _encode(number) if len(key) > size else _encode(number - 1)


def key_between(low: bytes | None, high: bytes | None) -> bytes:
    """A key strictly between; `None` is an open end. Needs low < high."""
    if low is None:
        return ZERO if high is None else key_before(high)
    if high is None:
        return key_after(low)
    number, size = _integer(low)
    following = _encode(number + 1)
    if following < high:
        return following
    high_number, high_size = _integer(high)
    fraction = high[high_size:] if high_number == number else b""
    return low[:size] + _middle(low[size:], fraction)


def _integer(key: bytes) -> tuple[int, int]:
    """The integer part's value and its length in bytes."""
    head = key[0]
    size = abs(head - 0x80)
    digits = int.from_bytes(key[1 : 1 + size], "big")
    if head >= 0x80:
        return digits + _OFFSETS[size], 1 + size
    return digits - 256**size + 1 - _OFFSETS[size], 1 + size


def _encode(number: int) -> bytes:
    magnitude, size = abs(number), 0
    while magnitude >= _OFFSETS[size + 1]:
        size += 1
    if number >= 0:
        return bytes([0x80 + size]) + (number - _OFFSETS[size]).to_bytes(size, "big")
    digits: int = 256**size - 1 + number + _OFFSETS[size]
    return bytes([0x80 - size]) + digits.to_bytes(size, "big")


def _middle(low: bytes, high: bytes) -> bytes:
    """A fraction strictly between two fractions; an empty `high` is one."""
    digits = bytearray()
    at = 0
    while True:
        a = low[at] if at < len(low) else 0
        b = high[at] if high and at < len(high) else 256
        if b - a > 1:
            digits.append((a + b) // 2)
            return bytes(digits)
        digits.append(a)
        if b > a:
            high = b""
        at += 1
