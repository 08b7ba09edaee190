"""Blocks of vectors in SQLite: some dozens in a row, so that a process reads all of a thread in a tenth of a second.

A block holds a model's vectors of some passages of a thread, all of one size, in order of places; no two blocks of a
model overlap, and `last` is the last place of each. Passages embedded together form a block; small blocks are merged
when together they are large enough for one.
"""

import sqlite3
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby, islice

from memory_engine.errors import InvalidVector
from memory_engine.llm.vectors import quantized
from memory_engine.storage.passage_rows import VECTOR_BLOCKS
from memory_engine.store.passages import THREAD_BITS, VectorRows

BLOCK = 64
"""Vectors from which on a block is not put together with others."""
BLOCK_MAX = 2 * BLOCK
PLACE_BYTES = 8


def put(raw: sqlite3.Connection, tid: int, model: str, vectors: Mapping[int, bytes]) -> None:
    """Keep vectors by place, in the stead of those that are there. Raises `InvalidVector` for a damaged block there."""
    if not vectors:
        return
    whole: dict[int, bytes] = {}
    lasts = _small_before(raw, tid, model, min(vectors), BLOCK - len(vectors))
    for last in lasts:
        for block in _read_blocks(raw, "= ?", (tid, model, last)):
            whole.update(_by_place(block))
    for block in _read_blocks(raw, ">= ? ORDER BY last", (tid, model, min(vectors))):
        if block.places[0] > max(vectors):
            break
        lasts.append(block.places[-1])
        whole.update(_by_place(block))
    for last in lasts:
        raw.execute("DELETE FROM vector_blocks WHERE tid = ? AND model = ? AND last = ?", (tid, model, last))
    _insert(raw, tid, model, {**whole, **vectors})


def _small_before(raw: sqlite3.Connection, tid: int, model: str, place: int, enough: int) -> list[int]:
    """The small blocks directly before a place, if they hold enough vectors together; else none."""
    found, count = [], 0
    for last, size in raw.execute(
        "SELECT last, length(places) FROM vector_blocks WHERE tid = ? AND model = ? AND last < ? "
        "ORDER BY last DESC LIMIT ?",
        (tid, model, place, BLOCK),
    ):
        if size >= BLOCK * PLACE_BYTES:
            break
        found.append(last)
        count += size // PLACE_BYTES
    return found if count >= enough else []


def _insert(raw: sqlite3.Connection, tid: int, model: str, vectors: Mapping[int, bytes]) -> None:
    for _, alike in groupby(sorted(vectors), key=lambda place: len(vectors[place])):
        while some := list(islice(alike, BLOCK_MAX)):
            raw.execute(
                "INSERT INTO vector_blocks (tid, model, last, places, numbers) VALUES (?, ?, ?, ?, ?)",
                (tid, model, some[-1], _packed(some), b"".join(vectors[place] for place in some)),
            )


def read_vectors(raw: sqlite3.Connection, tid: int, model: str, after: int) -> list[VectorRows]:
    """The vectors of places above `after`, in order of places: in one piece while all are of one size.

    Raises `InvalidVector` for a damaged block.
    """
    found: list[tuple[array[int], bytearray]] = []
    size = -1
    for block in _read_blocks(raw, "> ? ORDER BY last", (tid, model, after)):
        begin = sum(place <= after for place in block.places) if block.places[0] <= after else 0
        if size * len(block.places) != len(block.numbers):
            size = len(block.numbers) // len(block.places)
            found.append((array("q"), bytearray()))
        places, numbers = found[-1]
        places.extend(block.places[begin:])
        numbers += memoryview(block.numbers)[begin * size :]
    return [VectorRows(places, numbers) for places, numbers in found]


def destroy(raw: sqlite3.Connection, tid: int, places: Iterable[int]) -> None:
    """Destroy the vectors of some places, of every model; all of a model where one of its blocks there is damaged."""
    doomed = sorted(places)
    for (model,) in raw.execute("SELECT DISTINCT model FROM vector_blocks WHERE tid = ?", (tid,)).fetchall():
        try:
            _destroy(raw, tid, model, doomed)
        except InvalidVector:
            drop(raw, tid, model)


def _destroy(raw: sqlite3.Connection, tid: int, model: str, doomed: Sequence[int]) -> None:
    gone, upto = frozenset(doomed), -1
    for place in doomed:
        if place <= upto:
            continue
        block = next(_read_blocks(raw, ">= ? ORDER BY last LIMIT 1", (tid, model, place)), None)
        if block is None:
            return
        upto = block.places[-1]
        kept = {place: vector for place, vector in _by_place(block).items() if place not in gone}
        if len(kept) < len(block.places):
            raw.execute("DELETE FROM vector_blocks WHERE tid = ? AND model = ? AND last = ?", (tid, model, upto))
            _insert(raw, tid, model, kept)


def drop(raw: sqlite3.Connection, tid: int, model: str) -> None:
    """Destroy all vectors of a model: its passages wait for new ones."""
    for table in ("vector_blocks", "embedded"):
        raw.execute(f"DELETE FROM {table} WHERE tid = ? AND model = ?", (tid, model))


def faults(raw: sqlite3.Connection, tid: int, there: Collection[int]) -> Iterator[str]:
    """The faults in the blocks of a thread; `there` are the places of its passages."""
    models = raw.execute("SELECT DISTINCT model FROM vector_blocks WHERE tid = ? ORDER BY model", (tid,)).fetchall()
    for (model,) in models:
        counted: dict[int, int] = {}
        lost, upto = 0, -1
        for last, packed, numbers in raw.execute(
            "SELECT last, places, numbers FROM vector_blocks WHERE tid = ? AND model = ? ORDER BY last", (tid, model)
        ):
            places = _places(packed)
            if not places or len(numbers) % len(places) or places[-1] != last or [*places] != sorted({*places}):
                yield f"vectors of {model}: the block up to place {last} is damaged"
                continue
            if places[0] <= upto:
                yield f"vectors of {model}: the block up to place {last} is out of order"
            upto = last
            size = len(numbers) // len(places)
            counted[size] = counted.get(size, 0) + len(places)
            lost += sum(place not in there for place in places)
        yield from size_faults(model, counted)
        if lost:
            yield f"vectors of {model}: {lost:,} are of no passage"


def size_faults(model: str, counted: Mapping[int, int]) -> Iterator[str]:
    """The faults in vectors, given their size in bytes and their number."""
    usual = max(counted, key=lambda size: (counted[size], -size), default=2)
    odd = sum(count for size, count in counted.items() if size != usual)
    if odd or usual % 2 or not usual:
        yield f"vectors of {model}: {odd:,} are not of {usual // 2:,} dimensions as {counted[usual]:,} are"


def take_over(raw: sqlite3.Connection) -> None:
    """Make blocks of the vectors that an older release kept in rows of their own, four bytes a number.

    Where one of them is damaged, those of its thread and model are left out, to be embedded again.
    """
    raw.execute(VECTOR_BLOCKS)
    for tid, model in raw.execute("SELECT DISTINCT tid, model FROM vectors").fetchall():
        rows = raw.execute("SELECT pos, vector FROM vectors WHERE tid = ? AND model = ? ORDER BY pos", (tid, model))
        try:
            while some := rows.fetchmany(BLOCK):
                places = [pos & (1 << THREAD_BITS) - 1 for pos, _ in some]
                _insert(raw, tid, model, dict(zip(places, _of_old([vector for _, vector in some]), strict=True)))
        except (InvalidVector, ValueError):
            drop(raw, tid, model)
    raw.execute("DROP TABLE vectors")


def _of_old(vectors: Sequence[bytes]) -> Sequence[bytes]:
    """Vectors of four bytes a number in two. Raises `InvalidVector` or `ValueError` for damaged ones."""
    try:
        import numpy

        from memory_engine.storage.vectors.quantized import quantized_rows
    except ModuleNotFoundError:
        return [quantized(array("f", vector)) for vector in vectors]  # a number that is not finite has no integer
    whole = b"".join(vectors)
    if len(whole) != len(vectors) * len(vectors[0]):
        raise ValueError
    return [row.tobytes() for row in quantized_rows(numpy, whole, len(vectors), len(vectors[0]) // 4)]


def _read_blocks(raw: sqlite3.Connection, which: str, values: Sequence[object]) -> Iterator[VectorRows]:
    """The blocks in these rows. Raises `InvalidVector` for a damaged one."""
    query = f"SELECT last, places, numbers FROM vector_blocks WHERE tid = ? AND model = ? AND last {which}"
    with closing(raw.execute(query, values)) as rows:  # an error holds its frames, and they would hold old pages
        for last, packed, numbers in rows:
            places = _places(packed)
            if not places or places[-1] != last or len(numbers) % len(places):
                raise InvalidVector("the store", f"the block up to place {last} is damaged")
            yield VectorRows(places, numbers)


def _by_place(rows: VectorRows) -> dict[int, bytes]:
    size = len(rows.numbers) // len(rows.places)
    return {place: bytes(rows.numbers[n * size : (n + 1) * size]) for n, place in enumerate(rows.places)}


def _packed(places: Sequence[int]) -> bytes:
    packed = array("q", places)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _places(packed: bytes) -> "array[int]":
    """Places of a block; none where they are damaged."""
    places = array("q")
    if not len(packed) % PLACE_BYTES:
        places.frombytes(packed)
    if sys.byteorder == "big":
        places.byteswap()
    return places
