"""The bytes of a database file that SQLite does not use: to be zeroed, and to be searched.

Removed and moved rows leave copies in free pages, in the gaps of pages and behind the ends of overflow chains, where
nothing overwrites them. Here they become zeros, and nothing that SQLite reads is touched.

It runs as a program of its own, `python pages.py dirty FILE`, `zero FILE`, `find FILE…` or `part FILE`: a process that
closes a second descriptor of the file would lose the locks that SQLite holds on it. It needs the standard library
alone. While it looks for pages anybody may write; while it zeroes some, the caller keeps all others from that. The file
format: https://sqlite.org/fileformat2.html
"""

import json
import mmap
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping

_HEADER = 100
_TREE_PAGES = frozenset((2, 5, 10, 13))
_LEAVES = frozenset((10, 13))
_PAGES_MAX = 1 << 25
"""In a file of this number of pages, the first byte of an overflow page could be that of a tree's."""
_LOCK_BYTE = 1 << 30
_HITS_MAX = 1 << 16
_BLOCK = 1 << 22
_NICE = 10
"""Added niceness of a process that only reads, so that it takes no time from those that answer calls."""


class UnknownFormat(ValueError):
    """The file is not laid out as it should be; nothing was changed."""


_NONSENSE = (UnknownFormat, struct.error, IndexError)


class Pages:
    """The pages of a file, by number from 1."""

    def __init__(self, data: "mmap.mmap | bytes") -> None:
        self.data = data
        size = int.from_bytes(data[16:18], "big")
        self.size = 65_536 if size == 1 else size
        self.usable = self.size - data[20]
        self.count = len(data) // self.size if self.size else 0
        known = data[:16] == b"SQLite format 3\0" and self.size >= 512 and data[52:56] == b"\0\0\0\0"
        if not known or len(data) % self.size or self.count >= _PAGES_MAX:
            raise UnknownFormat

    def free(self, page: int, listed: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """The unused bytes that a page knows of: their offset and end. `listed` is the free list."""
        if page in listed:
            yield self._start(page) + listed[page], self._start(page) + self.size
        elif page <= self.count and page != _LOCK_BYTE // self.size + 1:
            yield from self._free_in(page)

    def listed(self) -> dict[int, int]:
        """The pages of the free list, each with the number of bytes at its beginning that are in use."""
        found: dict[int, int] = {}
        for trunk, leaves in self._trunks():
            found |= dict.fromkeys(leaves, 0)
            found[trunk] = 8 + 4 * len(leaves)
        return found

    def dirty(self, some: Iterable[int] | None = None) -> list[int]:
        """The pages that know of unused bytes which are not zero; those too that make no sense while others write.

        With `some`, only these and the free list are looked at.
        """
        listed = self.listed_now()
        pages = range(1, self.count + 1) if some is None else sorted({*some, *listed})
        return [page for page in pages if self._is_dirty(page, listed)]

    def listed_now(self) -> Mapping[int, int]:
        """The pages of the free list; none where it makes no sense while others write."""
        try:
            return self.listed()
        except _NONSENSE:
            return {}

    def stretches(self, some: Iterable[int]) -> Iterator[tuple[int, int]]:
        """The offset and the end of each run of neighbouring pages, of these and of the free list."""
        pages = sorted({page for page in (*some, *self.listed_now()) if 1 <= page <= self.count})
        first = before = 0
        for page in pages:
            if page != before + 1:
                if before:
                    yield (first - 1) * self.size, before * self.size
                first = page
            before = page
        if before:
            yield (first - 1) * self.size, before * self.size

    def _is_dirty(self, page: int, listed: Mapping[int, int]) -> bool:
        try:
            return any(self.data[first:end].strip(b"\0") for first, end in self.free(page, listed))
        except _NONSENSE:
            return True

    def _start(self, page: int) -> int:
        if not 1 <= page <= self.count:
            raise UnknownFormat
        return (page - 1) * self.size

    def _trunks(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The pages of the free list, each with those it lists."""
        seen: set[int] = set()
        trunk = int.from_bytes(self.data[32:36], "big")
        while trunk:
            at = self._start(trunk)
            if trunk in seen:
                raise UnknownFormat
            seen.add(trunk)
            trunk_next, n = struct.unpack_from(">II", self.data, at)
            if n > self.usable // 4 - 2:
                raise UnknownFormat
            yield trunk, struct.unpack_from(f">{n}I", self.data, at + 8)
            trunk = trunk_next

    def _free_in(self, page: int) -> Iterator[tuple[int, int]]:
        """The gap of a page of a tree, its free blocks but for their heads, and the ends of its overflow chains."""
        data, at = self.data, self._start(page)
        header = at + (_HEADER if page == 1 else 0)
        kind = data[header]
        if kind not in _TREE_PAGES:
            return  # it belongs to an overflow chain, whose length its cell holds
        block, cells, content = struct.unpack_from(">HHH", data, header + 1)
        pointers = header + (8 if kind in _LEAVES else 12)
        gap_ends = at + (content or 65_536)
        if pointers + 2 * cells > gap_ends or gap_ends > at + self.usable:
            raise UnknownFormat
        yield pointers + 2 * cells, gap_ends
        while block:
            following, size = struct.unpack_from(">HH", data, at + block)
            if block + size > self.usable or (following and following <= block):
                raise UnknownFormat
            yield at + block + 4, at + block + size
            block = following
        if kind == 5:
            return
        most = self.usable - 35 if kind == 13 else (self.usable - 12) * 64 // 255 - 23
        first_of_long = 0x80 | min(most >> 7, 0x7F)
        at += 4 if kind == 2 else 0  # in these the page below comes first
        for cell in struct.unpack_from(f">{cells}H", data, pointers):
            # nearly all cells are seen to be short by the first bytes of their lengths, without a call
            first = data[at + cell]
            if first >= 0x80 and (first >= first_of_long or data[at + cell + 1] >= 0x80):
                yield from self._overflow_end(at + cell, kind, most)

    def _overflow_end(self, cell: int, kind: int, most: int) -> Iterator[tuple[int, int]]:
        """The bytes behind a cell's payload on the last page of its overflow chain, if it is longer than `most`."""
        data, usable = self.data, self.usable
        payload, cell = _varint(data, cell)
        if kind == 13:
            _, cell = _varint(data, cell)
        if payload <= most:
            return
        least = (usable - 12) * 32 // 255 - 23
        local = least + (payload - least) % (usable - 4)
        local = local if local <= most else least
        left = payload - local
        if left > len(data):  # a damaged length, whose chain may lead in a circle
            raise UnknownFormat
        (page,) = struct.unpack_from(">I", data, cell + local)
        while left > usable - 4:
            (page,) = struct.unpack_from(">I", data, self._start(page))
            left -= usable - 4
        yield self._start(page) + 4 + left, self._start(page) + self.size


def _varint(data: "mmap.mmap | bytes", at: int) -> tuple[int, int]:
    """A number of SQLite's, and where it ends."""
    value = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | data[at], at + 1


def dirty(path: str, some: Iterable[int] | None = None) -> list[int]:
    """Return the pages of a database that have to be zeroed. Others may write to it meanwhile.

    With `some`, only these and free pages are looked at. Raises `UnknownFormat` for a file with another layout. If the
    file gets shorter meanwhile, the system ends the process: run it as a program of its own.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - starts in milliseconds
        if not os.fstat(file.fileno()).st_size:
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return Pages(data).dirty(some)


def zero(path: str, pages: Iterable[int]) -> int:
    """Zero the unused bytes that some pages of a database know of, while no one writes to it. Returns how many.

    Raises `UnknownFormat` where the file is not as it should be; then nothing was changed.
    """
    file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        if not os.fstat(file).st_size:
            return 0
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as data:
            of, listed = Pages(data), Pages(data).listed()
            free = (piece for page in pages for piece in of.free(page, listed))
            unused = [(first, end) for first, end in free if data[first:end].strip(b"\0")]
        for first, end in unused:
            os.lseek(file, first, os.SEEK_SET)
            os.write(file, bytes(end - first))
        return sum(end - first for first, end in unused)
    finally:
        os.close(file)


def serve(path: str) -> None:
    """Zero what each line of the input lists, pages as JSON; the answer is a line of JSON too: null if it could not."""
    for line in sys.stdin:
        try:
            answer = zero(path, json.loads(line))
        except _NONSENSE:
            answer = None
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def found(paths: Iterable[str], needles: Iterable[bytes]) -> list[tuple[str, int, int]]:
    """Find byte strings in files. Returns for each hit the file, the offset, and the index of the byte string.

    It reads blocks instead of mapping the files: SQLite may shorten its write-ahead log meanwhile, and the system kills
    a process that reads a mapped page behind the end of a file.
    """
    hits: list[tuple[str, int, int]] = []
    wanted = list(needles)
    overlap = max(map(len, wanted), default=1) - 1
    for path in paths:
        try:
            file = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - starts in milliseconds
        except FileNotFoundError:
            continue  # a graph that has gone since it was listed
        with file:
            begins, block = 0, b""
            while piece := file.read(_BLOCK):
                kept = block[max(len(block) - overlap, 0) :]
                begins += len(block) - len(kept)
                block = kept + piece
                for n, needle in enumerate(wanted):
                    # what ends in the bytes kept was found in the block before
                    at = block.find(needle, max(len(kept) - len(needle) + 1, 0))
                    while at >= 0 and len(hits) < _HITS_MAX:
                        hits.append((path, begins + at, n))
                        at = block.find(needle, at + 1)
    return hits


def found_in_part(
    path: str, pages: Iterable[int], needles: Iterable[bytes], unique: Iterable[bytes], sample: tuple[int, int]
) -> tuple[list[tuple[int, str]], int]:
    """Find byte strings in some pages of a database and in its free pages; those that are `unique` in a sample too.

    The sample is a number of stretches, of a number of bytes each, spread evenly.

    Returns the offset of each hit with the byte string in hexadecimal digits, and how many bytes were searched. Raises
    `UnknownFormat` for a file with another layout.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:  # noqa: PTH123 - as above
        places = [(first, end, tuple(needles)) for first, end in Pages(data).stretches(pages)]
        count, size = sample
        if count:
            step = max(size, len(data) // count)
            begin = int.from_bytes(os.urandom(8), "big") % step - step  # not the same stretches each time
            spread = ((max(0, at), min(at + size, len(data))) for at in range(begin, len(data), step))
            places += [(first, end, tuple(unique)) for first, end in spread if first < end]
        hits: list[tuple[int, str]] = []
        for first, end, wanted in places:
            for needle in wanted:
                at = data.find(needle, first, end)
                while at >= 0 and len(hits) < _HITS_MAX:
                    hits.append((at, needle.hex()))
                    at = data.find(needle, at + 1, end)
        return hits, sum(end - first for first, end, _ in places)


def main() -> int:
    """Do what the first argument says to the files that follow; the outcome is a line of JSON."""
    act, *paths = sys.argv[1:]
    if act == "zero":
        serve(paths[0])
        return 0
    if hasattr(os, "nice"):
        os.nice(_NICE)
    if act == "dirty":
        some = sys.stdin.read()
        try:
            sys.stdout.write(json.dumps(dirty(paths[0], json.loads(some) if some else None)))
        except UnknownFormat:
            sys.stdout.write("null")
    elif act == "part":
        asked = json.load(sys.stdin)
        needles, unique = ([bytes.fromhex(one) for one in asked[name]] for name in ("needles", "unique"))
        try:
            sys.stdout.write(json.dumps(found_in_part(paths[0], asked["pages"], needles, unique, asked["sample"])))
        except _NONSENSE:
            sys.stdout.write("null")
    else:
        needles = [bytes.fromhex(line) for line in sys.stdin.read().split()]
        sys.stdout.write(json.dumps(found(paths, needles)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
