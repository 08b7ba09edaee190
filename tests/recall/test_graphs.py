"""Many vectors: the adaptive index against the exact one, its graph in files, and what both take."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine import errors
from memory_engine.llm.vectors import Packed, VectorIndex, packed
from memory_engine.storage.vectors.adaptive import THRESHOLD, AdaptiveIndex
from memory_engine.storage.vectors.exact import ExactIndex
from memory_engine.storage.vectors.graph_files import Origin, UnusableGraph

np = pytest.importorskip("numpy", reason="vectors need NumPy (extra `vectors`)")

DIMENSION = 24
ORIGIN = Origin("model", "stamp")
Index = Callable[[int], VectorIndex]


LIBRARIES = ("hnswlib", "usearch", "usearch-i8")
using: list[Any] = []
"""The library of the graphs that are made now."""


@pytest.fixture(params=LIBRARIES, scope="module", autouse=True)
def library(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test is one of each library."""
    pytest.importorskip(
        request.param.partition("-")[0], reason="graphs need hnswlib or usearch (extras `hnsw`, `usearch`)"
    )
    using.append(request.param)
    yield request.param
    using.clear()


def adaptive(dimension: int, threshold: int = THRESHOLD) -> AdaptiveIndex:
    """An index whose graph is of the library."""
    return AdaptiveIndex(dimension, threshold=threshold, library=using[0])


def clustered(count: int, seed: int = 1) -> list[tuple[str, Packed]]:
    """Vectors of so many texts about forty things, as models give them."""
    centres = np.random.default_rng(0).normal(size=(40, DIMENSION))
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(0, 40, count)] + 0.5 * rng.normal(size=(count, DIMENSION))
    return [(f"k{n:05}", row.astype("<f4").tobytes()) for n, row in enumerate(rows)]


def built(items: list[tuple[str, Packed]], threshold: int = 0) -> AdaptiveIndex:
    """An index with a whole graph."""
    index = adaptive(DIMENSION, threshold=threshold)
    index.put_many(items)
    assert 0 == index.build()
    return index


def exact(items: list[tuple[str, Packed]]) -> ExactIndex:
    """The oracle."""
    index = ExactIndex(DIMENSION)
    index.put_many(items)
    return index


def recall(index: VectorIndex, oracle: VectorIndex, limit: int = 10) -> float:
    """The share of the truly nearest that an index finds; those as near as the last of them count too."""
    good = 0
    for query in QUERIES:
        least = oracle.search(query, limit)[-1][1]
        good += sum(score >= least for _, score in index.search(query, limit))
    return good / (limit * len(QUERIES))


QUERIES = [vector for _, vector in clustered(60, seed=2)]

# the same for every index

INDEXES = pytest.mark.parametrize("make", [ExactIndex, partial(AdaptiveIndex, threshold=0), AdaptiveIndex])


@INDEXES
def test_many_at_once_are_as_many_one_by_one(make: Index) -> None:
    """Numbers and stored bytes, new keys and old ones, in any company."""
    items = [("b", (3.0, 4.0)), ("a", packed((3.0, 4.0))), ("z", (0, 0)), ("b", packed((1.0, 0.0)))]
    at_once, one_by_one = make(2), make(2)
    at_once.put_many(iter(items))
    for key, vector in items:
        one_by_one.put(key, vector)
    expected = [("b", 1.0), ("a", 0.6), ("z", 0.0)]
    assert [expected, expected, expected] == [
        at_once.search((1, 0), 5),
        one_by_one.search(packed((1, 0)), 5),
        at_once.search((1, 0), 5, ["z", "b", "a", "no"]),
    ]


@INDEXES
@pytest.mark.parametrize("bad", [packed((1.0,)), b"\0" * 7, (1.0, 2.0, 3.0), packed((1.0, float("nan")))])
def test_what_is_no_vector_is_refused_among_many(make: Index, bad: Packed) -> None:
    """Those before it are there, those after it are not, and it searches nothing."""
    index = make(2)
    with pytest.raises(errors.InvalidVector):
        index.put_many([("a", (1.0, 0.0)), ("b", bad), ("c", (1.0, 0.0))])
    with pytest.raises(errors.InvalidVector):
        index.search(bad, 1)
    assert [("a", 1.0)] == index.search((1.0, 0.0), 5)


def test_a_stored_vector_keeps_single_precision() -> None:
    """Four bytes a number, the lowest first."""
    assert b"\x00\x00\x80\x3f\x00\x00\x00\xc0" == packed((1.0, -2.0))


# the graph


def test_nearly_all_of_the_nearest_are_found() -> None:
    """On clustered vectors, at least 98 of 100, with the same scores as by comparing with all."""
    items = clustered(6_000)
    index, oracle = built(items), exact(items)
    assert recall(index, oracle) >= 0.98
    scores = dict(oracle.search(QUERIES[0], len(items)))
    assert all(scores[key] == score for key, score in index.search(QUERIES[0], 20))


def test_below_the_threshold_it_is_exact() -> None:
    """No graph is built, and answers are the same to the last."""
    items = clustered(500)
    index = built(items, threshold=500)
    assert [exact(items).search(query, 7) for query in QUERIES] == [index.search(query, 7) for query in QUERIES]


def test_among_given_keys_it_is_exact() -> None:
    """However few they are, and whether they exist."""
    items = clustered(3_000)
    index, oracle = built(items), exact(items)
    keys = [f"k{n:05}" for n in range(5, 4_000, 150)]
    assert [oracle.search(query, 5, keys) for query in QUERIES] == [index.search(query, 5, keys) for query in QUERIES]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 120), st.integers(-60, 399)), max_size=500), st.integers(0, 100))
def test_any_puts_and_removals_leave_what_was_put(changes: list[tuple[int, int]], threshold: int) -> None:
    """Replaced, removed, put again: it holds the same keys as an exact index, and finds what that finds."""
    items = clustered(400)
    index, oracle = adaptive(DIMENSION, threshold=threshold), ExactIndex(DIMENSION)
    for key, vector in changes:
        for each in (index, oracle):
            if vector < 0:
                each.remove(f"k{key}")
            else:
                each.put(f"k{key}", items[vector][1])
    assert (set(oracle.keys()), len(oracle)) == (index.keys(), len(index))
    if len(oracle):
        assert recall(index, oracle, min(10, len(oracle))) >= 0.98
    index.build()
    if len(oracle):
        assert recall(index, oracle, min(10, len(oracle))) >= 0.98


def test_a_graph_that_is_mostly_dead_is_built_anew() -> None:
    """After every vector was replaced three times it finds as well as at first."""
    items = clustered(2_000)
    index = built(items)
    for seed in (3, 4, 5):
        items = clustered(2_000, seed)
        index.put_many(items)
        index.build()
    assert (2_000, 0) == (len(index), index.waiting)
    assert recall(index, exact(items)) >= 0.98


def test_equal_vectors_hide_no_other() -> None:
    """Hundreds of texts may be the same: they come by key, and what is near them is found."""
    items = clustered(3_000)
    same = {f"s{n:04}": items[n % 3][1] for n in range(1_500)}
    index = built([*items, *same.items()])
    assert recall(index, exact([*items, *same.items()])) >= 0.98
    expected = ["k00000", *(f"s{n:04}" for n in range(0, 12, 3))]
    assert expected == [key for key, _ in index.search(items[0][1], 5)]
    for key in same:
        index.remove(key)
    assert recall(index, exact(items)) >= 0.98


def test_what_waits_is_found_all_the_same() -> None:
    """A graph is built bit by bit, by puts and by `build`; an answer never lacks what was put."""
    items = clustered(3_000)
    index = adaptive(DIMENSION, threshold=1_000)
    index.put_many(items[:-1])
    oracle = exact(items[:-1])
    waiting = [index.build(700) for _ in range(3)]
    assert [2_299, 1_599, 899] == waiting
    assert recall(index, oracle) >= 0.98
    index.put(*items[-1])
    assert [(items[-1][0], 1.0)] == index.search(items[-1][1], 1)
    assert 898 == index.waiting  # a put builds two, and is one


def test_the_limit_may_be_anything() -> None:
    """None, all, or more than there are."""
    items = clustered(300)
    index, oracle = built(items), exact(items)
    for limit in (-1, 0, 1, 299, 300, 1_000):
        assert len(oracle.search(QUERIES[0], limit)) == len(index.search(QUERIES[0], limit))


def test_a_graph_of_nothing_finds_nothing() -> None:
    """Also when all that was there is gone."""
    index = built(clustered(50))
    for key in list(index.keys()):
        index.remove(key)
    assert [] == index.search(QUERIES[0], 5)


def test_a_vector_of_length_zero_is_like_nothing() -> None:
    """As a query, and as an entry of a graph."""
    index = built([*clustered(2_000), ("zero", packed([0.0] * DIMENSION))])
    assert [("k00000", 0.0), ("k00001", 0.0)] == index.search([0.0] * DIMENSION, 2, ["k00001", "k00000"])
    assert {0.0} == {score for _, score in index.search([0.0] * DIMENSION, 3)}


def test_threads_take_turns() -> None:
    """Searches, puts, removals and building at once neither fail nor lose anything."""
    items = clustered(4_000)
    index = adaptive(DIMENSION, threshold=500)
    index.put_many(items[:2_000])

    def search(query: Packed) -> bool:
        found = index.search(query, 10)
        return found == sorted(found, key=lambda item: (-item[1], item[0])) and len(found) == 10

    with ThreadPoolExecutor(4) as pool:
        building = pool.submit(index.build)
        puts = [pool.submit(index.put, *item) for item in items[2_000:2_400]]
        removals = [pool.submit(index.remove, key) for key, _ in items[:200]]
        searches = list(pool.map(search, itertools.islice(itertools.cycle(QUERIES), 400)))
        building.result()
        for done in (*puts, *removals):
            done.result()
    index.build()
    assert [True] * 400 == searches
    assert recall(index, exact(items[200:2_400])) >= 0.98


# the graph in files


def test_the_same_calls_write_the_same_bytes(tmp_path: Path) -> None:
    """Two graphs that were built in one order are equal, answer for answer and byte for byte."""
    items = clustered(2_000)
    first, second = built(items), built(items)
    first.save(tmp_path / "1", ORIGIN)
    second.save(tmp_path / "2", ORIGIN)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert (tmp_path / "1.graph").read_bytes() == (tmp_path / "2.graph").read_bytes()
    assert [first.search(query, 9) for query in QUERIES] == [second.search(query, 9) for query in QUERIES]


def test_a_graph_is_as_it_was_when_it_is_read(tmp_path: Path) -> None:
    """Nothing is left to build, and every answer is the same."""
    items = clustered(3_000)
    index, again = built(items), adaptive(DIMENSION, threshold=0)
    index.save(tmp_path / "graph", ORIGIN)
    again.put_many(items)
    assert (None, 0) == (again.load(tmp_path / "graph", ORIGIN), again.waiting)
    assert [index.search(query, 9) for query in QUERIES] == [again.search(query, 9) for query in QUERIES]
    assert ["graph", "graph.graph"] == sorted(path.name for path in tmp_path.iterdir())


def test_a_graph_may_be_older_than_the_vectors(tmp_path: Path) -> None:
    """What came since waits, what is gone or was replaced is not found, and it can be built on."""
    items = clustered(3_000)
    built(items).save(tmp_path / "graph", ORIGIN)
    newer = [
        *items[500:2_000],
        *zip([key for key, _ in items[2_000:]], QUERIES, strict=False),
        *clustered(3_200)[3_000:],
    ]
    index = adaptive(DIMENSION, threshold=0)
    index.put_many(newer)
    assert None is index.load(tmp_path / "graph", ORIGIN)
    assert len(QUERIES) + 200 == index.waiting
    assert recall(index, exact(newer)) >= 0.98
    index.build()
    index.put("new", QUERIES[0])
    assert {"new", "k02000"} == {key for key, _ in index.search(QUERIES[0], 2)}
    index.save(tmp_path / "graph", ORIGIN)
    assert None is adaptive(DIMENSION).load(tmp_path / "graph", ORIGIN)


def test_without_a_graph_there_are_no_files(tmp_path: Path) -> None:
    """Those of an older one are removed."""
    path = tmp_path / "graph"
    built(clustered(300)).save(path, ORIGIN)
    adaptive(DIMENSION).save(path, ORIGIN)
    assert [] == list(tmp_path.iterdir())
    assert "missing" == refusal(path)


def refusal(path: Path, origin: Origin = ORIGIN, dimension: int = DIMENSION) -> str:
    """Why a graph is not read. The index that asked is as it was."""
    index = adaptive(dimension, threshold=0)
    index.put("a", [1.0] * dimension)
    why = index.load(path, origin)
    assert [("a", 1.0)] == index.search([1.0] * dimension, 5)
    assert isinstance(why, UnusableGraph)
    assert why.why
    return why.reason


@pytest.mark.parametrize("name", ["graph", "graph.graph"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_damage_is_noticed(tmp_path: Path, name: str, share: float) -> None:
    """A bit that changed, and what was cut off, wherever it is."""
    built(clustered(300)).save(tmp_path / "graph", ORIGIN)
    whole = (tmp_path / name).read_bytes()
    place = int(len(whole) * share)
    (tmp_path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    assert "damaged" == refusal(tmp_path / "graph")
    (tmp_path / name).write_bytes(whole[:place])
    assert "damaged" == refusal(tmp_path / "graph")
    (tmp_path / name).unlink()
    assert "missing" == refusal(tmp_path / "graph")


def test_a_graph_of_something_else_is_not_read(tmp_path: Path) -> None:
    """Of another model, another stamp or another dimension; or half of two that were written in turn."""
    path = tmp_path / "graph"
    built(clustered(300)).save(path, ORIGIN)
    assert "origin" == refusal(path, Origin("other", "stamp"))
    assert "origin" == refusal(path, Origin("model", "other"))
    assert "dimension" == refusal(path, dimension=DIMENSION + 1)
    half = path.read_bytes()
    built(clustered(310)).save(path, ORIGIN)
    path.write_bytes(half)
    assert "damaged" == refusal(path)


def test_a_graph_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """Where the folder is missing, nothing is made."""
    with pytest.raises(FileNotFoundError):
        built(clustered(20)).save(tmp_path / "no" / "graph", ORIGIN)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files as POSIX systems do")
def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """Also where the library writes half a file and says nothing; the graph before stands."""
    code = f"""
import resource, signal
from pathlib import Path
from memory_engine.storage.vectors.adaptive import AdaptiveIndex
from memory_engine.storage.vectors.graph_files import Origin
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, origin = Path({str(tmp_path / "graph")!r}), Origin("model", "stamp")
index = AdaptiveIndex(8, threshold=0, library={using[0]!r})
index.put_many((f"k{{n}}", [float(n % 7), float(n), 1, 2, 3, 4, 5, 6]) for n in range(500))
index.build()
index.save(path, origin)
index.put("more", [1.0] * 8)
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))
try:
    index.save(path, origin)
except OSError as error:
    print(type(error).__name__)
print(index.load(path, origin), index.waiting, sorted(each.name for each in path.parent.iterdir()))
"""
    assert ["OSError", "None 1 ['graph', 'graph.graph']"] == run(code)


def run(code: str) -> list[str]:
    """What another Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_without_a_library_it_stays_exact(tmp_path: Path) -> None:
    """It says once what would help, finds the same, and a graph of elsewhere is refused."""
    path = tmp_path / "graph"
    built(clustered(20)).save(path, ORIGIN)
    code = f"""
import sys; sys.modules |= {{"hnswlib": None, "usearch": None, "usearch.index": None}}
import logging; logging.basicConfig(stream=sys.stdout, format="%(message)s")
from pathlib import Path
from memory_engine.storage.vectors.adaptive import AdaptiveIndex
from memory_engine.storage.vectors.graph_files import Origin
for _ in range(2):
    index = AdaptiveIndex({DIMENSION}, threshold=1)
    for key in "abc":
        index.put(key, [1.0] * {DIMENSION})
    print(index.build(), len(index.search([1.0] * {DIMENSION}, 5)))
print(index.load(Path({str(path)!r}), Origin("model", "stamp")).reason)
index.save(Path({str(path)!r}), Origin("model", "stamp"))
"""
    warning, *rest = run(code)
    helps = "pip install '.[usearch]' (or `hnsw`, which takes a C++ compiler)"
    assert (helps in warning, ["0 3", "0 3", "library"]) == (True, rest)


async def test_building_lets_the_event_loop_search() -> None:
    """A search of the loop comes between, long before a build in a worker thread is done."""
    items = clustered(6_000)
    index = adaptive(DIMENSION, threshold=0)
    index.put_many(items)
    index.build(1)
    building = asyncio.create_task(asyncio.to_thread(index.build))
    await asyncio.sleep(0)
    found = index.search(QUERIES[0], 3)
    waited = index.waiting
    await building
    assert (exact(items).search(QUERIES[0], 3), True, 0) == (found, waited > 0, index.waiting)
