"""The vectors of passages: two bytes a number, the nearest by their codes, in blocks of the database."""

import sqlite3
import struct
import tracemalloc
from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import UserMessage
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidVector
from memory_engine.llm.vectors import packed, quantized
from memory_engine.recall.service import Recall
from memory_engine.storage.vectors import quantized as coding
from memory_engine.storage.vectors.exact import ExactIndex
from memory_engine.storage.vectors.quantized import QuantizedVectors
from memory_engine.store.passages import PLACES_BITS, VectorRows
from memory_engine.testing import HashEmbedder
from tests.recall.recalled import KEPT

np = pytest.importorskip("numpy", reason="vectors need NumPy (extra `vectors`)")

DIMENSION = 384
MANY = 6_000
"""So many that the numbers of most of them are never looked at."""


def clustered(count: int, seed: int) -> list[list[float]]:
    """Vectors of so many texts about forty things, as models give them."""
    centres = np.random.default_rng(0).normal(size=(40, DIMENSION))
    rng = np.random.default_rng(seed)
    rows: list[list[float]] = (
        centres[rng.integers(0, 40, count)] + rng.normal(size=(count, 16)) @ rng.normal(size=(16, DIMENSION)) / 6
    ).tolist()
    return rows


def rows_of(vectors: Sequence[Sequence[float]], first: int = 0) -> VectorRows:
    """Vectors as a store gives them, each at the next place."""
    return VectorRows(array("q", range(first, first + len(vectors))), b"".join(map(quantized, vectors)))


def many(vectors: Sequence[Sequence[float]]) -> Any:
    """All of them, and the exact index as the oracle, by the same places."""
    index, oracle = QuantizedVectors(DIMENSION), ExactIndex(DIMENSION)
    index.add([rows_of(vectors)])
    oracle.put_many((str(place), packed(vector)) for place, vector in enumerate(vectors))
    return index, oracle


def test_a_stored_vector_has_unit_length_and_two_bytes_a_number() -> None:
    """Only its direction counts; one of no length stays so, and a number without an end is refused."""
    assert struct.pack("<hh", 19_660, 26_214) == quantized((3.0, 4.0)) == quantized((3e38, 4e38))
    assert b"\0\0\0\0" == quantized((0.0, 0.0))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="NaN"):
            quantized((1.0, bad))


def test_nearly_all_of_the_nearest_are_found() -> None:
    """At least 99 of 100 of the nearest ten and of the nearest sixty, with the exact scores but for their rounding."""
    index, oracle = many(clustered(MANY, 1))
    for limit in (10, 60):
        good = 0
        for query in clustered(40, 2):
            true = dict(oracle.search(query, MANY))
            least = sorted(true.values())[-limit] - 5e-5
            found = index.nearest(query, limit)
            good += sum(true[str(place)] >= least for place in found)
            cosines = index.cosines(query, found)
            assert sorted(cosines.values(), reverse=True) == [cosines[place] for place in found]
            assert all(abs(true[str(place)] - cosine) < 5e-5 for place, cosine in cosines.items())
        assert good >= 0.99 * limit * 40


def test_of_very_many_the_first_bits_choose_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of the nearest are found when most codes are read in part only, and of equal vectors the first."""
    for name, value in {"COMPARED_MIN": 180, "COMPARED_NUMBERS": 0, "SCANNED": 1_000, "SAMPLED": 500}.items():
        monkeypatch.setattr(coding, name, value)
    index, _ = many(clustered(2 * MANY, 1))
    queries = clustered(40, 2)
    whole = [set(index.nearest(query, 10)) for query in queries]
    monkeypatch.setattr(coding, "FIRST_FROM", 20)
    partly = [set(index.nearest(query, 10)) for query in queries]
    assert sum(len(one & other) for one, other in zip(whole, partly, strict=True)) >= 0.98 * 10 * 40
    one, other = clustered(2, 1)
    same = QuantizedVectors(DIMENSION)
    same.add([rows_of([other] * 100 + [one] * 2 * MANY)])
    assert list(range(100, 110)) == same.nearest(one, 10)


def test_a_vector_that_is_added_moves_none() -> None:
    """The first one after opening takes less room than the vectors that were read, which stay where they are."""
    vectors = clustered(MANY + 1, 1)
    index = QuantizedVectors(DIMENSION)
    index.add([rows_of(vectors[:MANY])])
    more = rows_of(vectors[MANY:], MANY)
    tracemalloc.start()
    try:
        index.add([more])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * MANY * DIMENSION
    assert [MANY] == index.nearest(vectors[MANY], 1)
    assert [7] == index.nearest(vectors[7], 1)


def test_among_given_places_are_only_those() -> None:
    """Few or many, known or not; whoever has no vector has no cosine."""
    vectors = clustered(MANY, 1)
    index, oracle = many(vectors)
    (query,) = clustered(1, 3)
    few = [*range(5, MANY, 500), MANY + 3, -4]
    expected = [int(key) for key, _ in oracle.search(query, 5, [str(place) for place in few])]
    assert expected == index.nearest(query, 5, few)
    assert set(range(5, MANY, 500)) == index.cosines(query, few).keys()
    most = range(0, MANY, 2)
    best = {int(key) for key, _ in oracle.search(query, 10, [str(place) for place in most])}
    assert len(best & set(index.nearest(query, 10, most))) >= 9
    assert [] == index.nearest(query, 5, ())
    assert {} == index.cosines(query, [])


def test_equal_vectors_come_in_the_order_of_places() -> None:
    """Also where there are more of them than are compared."""
    one, other = clustered(2, 1)
    index = QuantizedVectors(DIMENSION)
    index.add([rows_of([other] * 100 + [one] * MANY)])
    assert list(range(100, 110)) == index.nearest(one, 10)
    (cosine,) = set(index.cosines(one, range(100, 200)).values())
    assert cosine > 1 - 5e-5


@settings(max_examples=25)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_pieces_in_any_order_are_as_all_at_once(sizes: list[int], chance: Any) -> None:
    """However many come at a time, and from however many threads."""
    vectors = clustered(sum(sizes), 1)
    whole, parts = QuantizedVectors(DIMENSION), QuantizedVectors(DIMENSION)
    whole.add([rows_of(vectors)])
    pieces, at = [], 0
    for size in sizes:
        pieces.append(rows_of(vectors[at : at + size], at))
        at += size
    chance.shuffle(pieces)
    while pieces:
        count = chance.randint(1, len(pieces))
        parts.add(pieces[:count])
        del pieces[:count]
    for query in clustered(3, 2):
        assert whole.nearest(query, 20) == parts.nearest(query, 20)
        assert whole.cosines(query, range(0, at, 7)) == parts.cosines(query, range(0, at, 7))


def test_vectors_of_four_bytes_a_number_are_as_those_of_two() -> None:
    """An older release has left some in PostgreSQL; they come in pieces of their own."""
    vectors = clustered(300, 1)
    index, _ = many(vectors)
    mixed = QuantizedVectors(DIMENSION)
    old = VectorRows(array("q", range(200)), b"".join(map(packed, vectors[:200])))
    mixed.add([old, rows_of(vectors[200:], 200)])
    for query in clustered(5, 2):
        assert index.nearest(query, 10) == mixed.nearest(query, 10)
        ours, theirs = (one.cosines(query, range(300)) for one in (index, mixed))
        assert all(abs(ours[place] - theirs[place]) < 5e-5 for place in range(300))


def test_vectors_of_another_dimension_are_refused() -> None:
    """Nothing of what they came with is added."""
    index = QuantizedVectors(4)
    index.add([VectorRows([1], quantized((1.0, 0.0, 0.0, 0.0)))])
    for numbers in (b"", b"\0", b"\0" * 10, quantized((1.0,) * 3), packed((1.0, float("nan"), 0.0, 0.0))):
        with pytest.raises(InvalidVector):
            index.add([VectorRows([2], quantized((1.0,) * 4)), VectorRows([3], numbers)])
        assert [1] == index.nearest((1.0, 0.0, 0.0, 0.0), 5)
    with pytest.raises(InvalidVector):
        index.nearest((1.0, 0.0), 1)


Answer = tuple[str, float]
QUESTIONS = ("parcel 17", "a parcel went astray", "word63")


async def made(path: str) -> list[list[Answer]]:
    """A file with 150 passages that have vectors; what the questions find."""
    async with memory_engine.open(path, embedder=HashEmbedder(64), config=KEPT) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"parcel {n} of word{n % 70}") for n in range(150)])
        await thread.admin.prepare_search()
    return await found(path)


async def found(path: str) -> list[list[Answer]]:
    """What the questions find, each passage with its likeness."""
    async with memory_engine.open(path, embedder=HashEmbedder(64), config=KEPT) as engine:
        answers = [await engine.thread("t").search(question) for question in QUESTIONS]
        assert {("hybrid", 0)} == {(one.how, one.waiting) for one in answers}
        assert {} == await kernel_of(engine).store.faults("t")
        return [[(hit.text, hit.likeness or 0.0) for hit in hits] for hits in answers]


def assert_as_before(expected: list[list[Answer]], answers: list[list[Answer]]) -> None:
    """Expect the same passages in the same order; sums differ by processor, a likeness in its fourth place."""
    for before, after in zip(expected, answers, strict=True):
        assert [text for text, _ in before] == [text for text, _ in after]
        assert [likeness for _, likeness in before] == pytest.approx([likeness for _, likeness in after], abs=1e-3)


def left_behind(path: str) -> tuple[bool, int]:
    """Whether there is a folder of graphs, and how many tables of an older release's vectors."""
    with closing(sqlite3.connect(path)) as raw:
        (tables,) = raw.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'vectors'").fetchone()
    return Path(f"{path}-graphs").exists(), tables


def as_an_older_release(path: str, spoiled: bytes = b"") -> None:
    """Write the vectors as they were before: a row each, four bytes a number; and a graph beside the file."""
    with closing(sqlite3.connect(path)) as raw, raw:
        rows = raw.execute("SELECT tid, model, places, numbers FROM vector_blocks").fetchall()
        raw.execute("DROP TABLE vector_blocks")
        raw.execute(
            "CREATE TABLE vectors (tid INTEGER NOT NULL, model TEXT NOT NULL, pos INTEGER NOT NULL, "
            "vector BLOB NOT NULL, PRIMARY KEY (tid, model, pos)) STRICT"
        )
        for tid, model, places, numbers in rows:
            whole = np.frombuffer(numbers, "<i2").reshape(-1, 64).astype("<f4") * 7
            for place, row in zip(array("q", places), whole, strict=True):
                raw.execute("INSERT INTO vectors VALUES (?, ?, ?, ?)", (tid, model, tid << 40 | place, row.tobytes()))
        if spoiled:
            raw.execute("UPDATE vectors SET vector = ? WHERE pos = (SELECT max(pos) FROM vectors)", (spoiled,))
        raw.execute("PRAGMA user_version = 6")
    graphs = Path(f"{path}-graphs")
    graphs.mkdir()
    for name in ("0123456789abcdef01234567-0123456789abcdef01234567", "0123456789abcdef01234567-ab.graph"):
        (graphs / name).write_bytes(b"vectors")


@pytest.mark.parametrize("has_numpy", [True, False], ids=["NumPy", "no NumPy"])
async def test_vectors_of_an_older_release_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_numpy: bool
) -> None:
    """They answer as before, and their rows and graphs are gone; where NumPy is not installed, it takes longer."""
    path = str(tmp_path / "m.db")
    expected = await made(path)
    as_an_older_release(path)
    with monkeypatch.context() as patched:
        if not has_numpy:
            patched.setitem(__import__("sys").modules, "numpy", None)
        async with memory_engine.open(path) as engine:
            assert {} == await kernel_of(engine).store.faults("t")
    assert_as_before(expected, await found(path))
    assert left_behind(path) == (False, 0)


@pytest.mark.parametrize("spoiled", [b"\0" * 7, struct.pack("<64f", *[float("nan")] * 64)], ids=["size", "NaN"])
async def test_damaged_vectors_of_an_older_release_are_made_again(tmp_path: Path, spoiled: bytes) -> None:
    """All of their thread and model: what has no vector must be known to have none."""
    path = str(tmp_path / "m.db")
    expected = await made(path)
    as_an_older_release(path, spoiled)
    async with memory_engine.open(path, embedder=HashEmbedder(64), config=KEPT) as engine:
        assert 150 == await kernel_of(engine)[Recall].embedding.waiting("t")
        await engine.thread("t").admin.prepare_search()
    assert_as_before(expected, await found(path))


async def test_damaged_blocks_leave_words_and_do_not_stop_a_forgetting(tmp_path: Path) -> None:
    """A search says what it could not use; what is forgotten is gone, and the others are embedded again."""
    path = str(tmp_path / "m.db")
    await made(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE vector_blocks SET numbers = substr(numbers, 2)")
    async with memory_engine.open(path, embedder=HashEmbedder(64), config=KEPT) as engine:
        thread = engine.thread("t")
        answer = await thread.search("parcel 17")
        assert ("lexical", True) == (answer.how, "is damaged" in answer.failure)
        assert "parcel 17 of word17" == answer[0].text
        await thread.forget(event_ids=[answer[0].event_id])
        await thread.admin.prepare_search()
        answer = await thread.search("parcel 17", limit=150)
        assert ("hybrid", False) == (answer.how, "parcel 17 of word17" in {hit.text for hit in answer})
        kept = await kernel_of(engine).store.passages.vectors("t", HashEmbedder(64).name, 0)
        assert 149 == sum(len(rows.places) for rows in kept)


async def test_a_forgotten_vector_is_in_no_block(tmp_path: Path) -> None:
    """Not a byte of its numbers is in a row of the file, by another program's reading."""
    path = str(tmp_path / "m.db")
    await made(path)
    async with memory_engine.open(path, embedder=HashEmbedder(64), config=KEPT) as engine:
        thread = engine.thread("t")
        (hit,) = await thread.search("parcel 17", limit=1)
        (rows,) = await kernel_of(engine).store.passages.vectors("t", HashEmbedder(64).name, 0)
        at = list(rows.places).index(hit.seq << PLACES_BITS)
        numbers = bytes(rows.numbers[128 * at : 128 * (at + 1)])
        assert 1 == holding(path, numbers)
        await thread.forget(event_ids=[hit.event_id])
        assert 0 == holding(path, numbers)
        await thread.search("parcel 17")
        assert 0 == holding(path, numbers)


def holding(path: str, numbers: bytes) -> int:
    """The blocks that hold these numbers."""
    with closing(sqlite3.connect(path)) as raw:
        (count,) = raw.execute("SELECT count(*) FROM vector_blocks WHERE instr(numbers, ?)", (numbers,)).fetchone()
    return int(count)
