"""A process that builds one kind of vector index, or opens and uses one, and says what that took.

`python -m benchmarks.index_child KIND STEP FOLDER`: `codes`, `hnswlib` or `usearch`; `build` or `use`; and the folder
that `index_rows` wrote. Answers with one JSON object; `missing` says why it could not. CPU times are of all threads.
"""

import asyncio
import gc
import importlib
import json
import mmap
import re
import sqlite3
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import memory_engine
from benchmarks.figures import quantile
from benchmarks.index_rows import CHUNK, DIMENSION, LIMIT, Rows, numbers_of, read_rows, read_truth
from benchmarks.ours import WITHOUT_COMPACTION
from benchmarks.recall_child import resident_bytes
from memory_engine import Engine, Thread, UserMessage
from memory_engine.recall.vectors import VectorSpace

TENANT, WORDS = "acme", ("harbour", "ledger", "copper", "lantern", "meadow", "saddle", "velvet", "walnut")
PARTS = 100
"""Filtered searches ask one of this number of users, who have as many vectors each."""
PART = 7
THREAD = 10_000
"""Vectors of a thread at most."""
ADDED = 1_000
BATCH = 500
LINKS, BUILD_EFFORT = 16, 100
EFFORTS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024)
FOUND = 0.98
"""The share of the ten nearest that graphs are tuned to find."""
ROUNDED = 2e-5
PIECE = 64
"""Bytes in which a forgotten vector is looked for: a page ends in the midst of some."""
Answer = dict[str, float | str]


class Clock:
    """Wall-clock and CPU milliseconds of things that are done again and again."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time what is done within."""
        wall, cpu = perf_counter_ns(), process_time_ns()
        yield
        self.cpu.append((process_time_ns() - cpu) / 1e6)
        self.wall.append((perf_counter_ns() - wall) / 1e6)

    def answer(self, name: str) -> Answer:
        """The median, the 95th percentile, and the mean on the processor."""
        return {
            f"{name}_p50_ms": statistics.median(self.wall),
            f"{name}_p95_ms": quantile(self.wall, 0.95),
            f"{name}_cpu_ms": statistics.fmean(self.cpu),
        }


def once(name: str, clock: Clock) -> Answer:
    """The last step."""
    return {f"{name}_ms": clock.wall[-1], f"{name}_cpu_ms": clock.cpu[-1]}


def pieces_left(paths: Iterable[Path], forgotten: bytes) -> int:
    """How many pieces of a vector's bytes are in some files."""
    pieces = [forgotten[at : at + PIECE] for at in range(0, len(forgotten), PIECE)]
    found = 0
    for path in paths:
        if not path.exists() or not path.stat().st_size:
            continue
        with path.open("rb") as file, closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as whole:
            found += sum(whole.find(piece) >= 0 for piece in pieces)
    return found


def thread_size(count: int) -> int:
    """How many vectors a thread has."""
    return max(1, min(THREAD, count // PARTS))


def part_of(count: int) -> NDArray[np.int64]:
    """The numbers of one user's vectors."""
    numbers = np.arange(count)
    among: NDArray[np.int64] = numbers[numbers // thread_size(count) % PARTS == PART]
    return among


def found_share(rows: NDArray[np.int16], nearest: NDArray[np.int64], question: Rows, cosines: Iterable[float]) -> float:
    """How many of the nearest were found: as near as the last of them, but for the rounding of codes' scores."""
    least = float((numbers_of(rows[nearest]) @ question).min()) - ROUNDED
    return sum(cosine >= least for cosine in cosines) / LIMIT


# The engine


class Given:
    """An embedder that gives the vectors of the file: a text says which."""

    name, dimension = "given", DIMENSION

    def __init__(self, folder: Path) -> None:
        self._rows, (self._questions, _) = read_rows(folder), read_truth(folder)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text."""
        return [self._vector(text).tolist() for text in texts]

    def _vector(self, text: str) -> Rows:
        found = re.search(r"\b([nq])(\d+)x\b", text)
        if found is None:
            raise ValueError(text)
        number = int(found[2])
        if found[1] == "q":
            question: Rows = self._questions[number]
            return question
        row = numbers_of(self._rows[number % len(self._rows)])
        return np.roll(row, number // len(self._rows))

    async def aclose(self) -> None:
        """Nothing to release."""


def note(number: int) -> UserMessage:
    """The message whose vector has this number."""
    return UserMessage(content=f"note n{number}x of {WORDS[number % len(WORDS)]}{number // len(WORDS) % 125}")


async def build_codes(folder: Path) -> Answer:
    """Dispatch a message a vector, and let the engine index and embed them."""
    count = len(read_rows(folder))
    size = thread_size(count)
    clock = Clock()
    async with _opened(folder) as engine:
        with clock.running():
            for number, begin in enumerate(range(0, count, size)):
                user_id = f"u{number % PARTS}"
                thread = await engine.create_thread(f"t{number}", tenant_id=TENANT, user_id=user_id)
                end = min(count, begin + size)
                for at in range(begin, end, BATCH):
                    await thread.dispatch_all([note(n) for n in range(at, min(end, at + BATCH))])
                await thread.admin.prepare_search()
    return once("build", clock)


def _opened(folder: Path) -> AbstractAsyncContextManager[Engine]:
    return memory_engine.open(str(folder / "codes.db"), config=WITHOUT_COMPACTION, embedder=Given(folder))


async def use_codes(folder: Path) -> Answer:
    """Search all threads of the tenant, and those of a user; add, forget, erase."""
    questions, nearest = read_truth(folder)
    rows = read_rows(folder)
    before, opening = resident_bytes(), Clock()
    spaces: list[VectorSpace] = []
    alone = Clock()
    searched = VectorSpace.nearest

    def watched(space: VectorSpace, *words: Any, **more: Any) -> list[int]:
        spaces.append(space)
        with alone.running():
            return searched(space, *words, **more)

    async with AsyncExitStack() as stack:
        stack.enter_context(mock.patch.object(VectorSpace, "nearest", watched))
        with opening.running():
            engine = await stack.enter_async_context(_opened(folder))
            await _ask(engine, 0)
        gc.collect()
        answer: Answer = {**once("open", opening), "added_mib": (resident_bytes() - before) / 2**20}
        answer["file_mib"] = sum(path.stat().st_size for path in _files(folder)) / 2**20
        answer["index_mib"] = _blocks_bytes(folder) / 2**20
        whole = Clock()
        alone = Clock()
        hits = []
        for number in range(len(questions)):
            with whole.running():
                await _ask(engine, number)
            near = searched(spaces[-1], questions[number].tolist(), LIMIT)
            cosines = spaces[-1].cosines(questions[number].tolist(), near)
            hits.append(found_share(rows, nearest[number], questions[number], [*cosines.values()]))
        answer |= {"found": statistics.fmean(hits), **whole.answer("engine_search"), **alone.answer("search")}
        await _ask(engine, 0, f"u{PART}")
        whole = Clock()
        alone = Clock()
        for number in range(len(questions)):
            with whole.running():
                await _ask(engine, number, f"u{PART}")
        answer |= {**whole.answer("engine_filtered"), **alone.answer("filtered")}
        changed, forgotten = await _changed(engine, folder)
    return {**answer, **changed, "pieces_forgotten": pieces_left(_files(folder), forgotten)}


async def _ask(engine: Engine, number: int, user_id: str | None = None) -> None:
    text = f"what of {WORDS[number % len(WORDS)]}{number % 125}, q{number}x"
    await engine.search(text, tenant_id=TENANT, user_id=user_id)


async def _changed(engine: Engine, folder: Path) -> tuple[Answer, bytes]:
    """Messages added, each durable and searchable then; one forgotten, another erased. And the forgotten vector."""
    thread = engine.thread("t0")
    count = len(read_rows(folder))
    one, thousand, forgetting, erasing = Clock(), Clock(), Clock(), Clock()
    for number in range(20):
        with one.running():
            await thread.dispatch(note(count + number))
            await thread.admin.prepare_search()
    with thousand.running():
        await thread.dispatch_all([note(count + 20 + number) for number in range(ADDED)])
        await thread.admin.prepare_search()
    answer = {**one.answer("add_one"), **once("add_1000", thousand)}
    forgotten, erased = (_vector_of(folder, number) for number in (11, 13))
    found = pieces_left(_files(folder), forgotten), pieces_left(_files(folder), erased)
    with forgetting.running():
        await thread.forget(seqs=[await _seq(thread, 11)])
    answer |= {**once("forget", forgetting), "pieces_before": found[0]}
    with erasing.running():
        await thread.admin.erase(seqs=[await _seq(thread, 13)])
    answer |= {**once("erase", erasing), "pieces_erased": pieces_left(_files(folder), erased)}
    return answer, forgotten


async def _seq(thread: Thread, number: int) -> int:
    text = note(number).content
    async for stored in thread.events():
        if isinstance(stored.event, UserMessage) and stored.event.content == text:
            return stored.seq
    raise LookupError(text)


def _files(folder: Path) -> list[Path]:
    return [folder / f"codes.db{end}" for end in ("", "-wal") if (folder / f"codes.db{end}").exists()]


def _blocks_bytes(folder: Path) -> float:
    with closing(sqlite3.connect(folder / "codes.db")) as raw:
        return float(raw.execute("SELECT sum(length(places) + length(numbers)) FROM vector_blocks").fetchone()[0])


def _vector_of(folder: Path, number: int) -> bytes:
    """The bytes of a vector of the first thread, as they lie in the file."""
    size = 2 * DIMENSION
    with closing(sqlite3.connect(folder / "codes.db")) as raw:
        blocks = raw.execute(
            "SELECT numbers FROM vector_blocks WHERE tid = (SELECT min(tid) FROM vector_blocks) ORDER BY last"
        )
        return b"".join(numbers for (numbers,) in blocks)[number * size : (number + 1) * size]


# The graphs


class Hnswlib:
    """A graph of four bytes a number."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self._library = importlib.import_module("hnswlib")
        self._index = self._library.Index("ip", DIMENSION)
        self._index.init_index(count, M=LINKS, ef_construction=BUILD_EFFORT, random_seed=1)
        self._index.set_num_threads(1)

    def add(self, begin: int, rows: Rows) -> None:
        """Add rows under numbers from this one on."""
        self._index.add_items(rows, np.arange(begin, begin + len(rows)), num_threads=1)

    def save(self) -> None:
        """Write the whole file."""
        self._index.save_index(str(self.path))

    def open(self) -> None:
        """Read the file, with room for more."""
        self._index = self._library.Index("ip", DIMENSION)
        self._index.load_index(str(self.path))
        self._index.set_num_threads(1)

    def make_room(self, count: int) -> None:
        """Announce a number of vectors to be added."""
        self._index.resize_index(self._index.get_current_count() + count)

    def nearest(self, row: Rows, effort: int) -> list[int]:
        """The numbers of the nearest."""
        self._index.set_ef(max(effort, LIMIT))
        found: list[int] = self._index.knn_query(row, k=LIMIT, num_threads=1)[0][0].tolist()
        return found

    def rows_of(self, numbers: NDArray[np.int64]) -> Rows:
        """Their vectors."""
        return np.asarray(self._index.get_items(numbers, return_type="numpy"))

    def forget(self, number: int) -> None:
        """Never find it again."""
        self._index.mark_deleted(number)

    def overwrite(self, number: int) -> None:
        """Put another vector over it first."""
        self._index.add_items(-self.rows_of(np.array([number])), np.array([number]), num_threads=1)
        self._index.mark_deleted(number)


class Usearch:
    """A graph of two bytes a number (IEEE 754)."""

    def __init__(self, path: Path, count: int) -> None:
        del count
        self.path = path
        self._library = importlib.import_module("usearch.index")
        self._index = self._library.Index(
            ndim=DIMENSION, metric="ip", dtype="f16", connectivity=LINKS, expansion_add=BUILD_EFFORT
        )

    def add(self, begin: int, rows: Rows) -> None:
        """Add rows under numbers from this one on."""
        self._index.add(np.arange(begin, begin + len(rows), dtype=np.uint64), rows, threads=1)

    def save(self) -> None:
        """Write the whole file."""
        self._index.save(str(self.path))

    def open(self) -> None:
        """Read the file."""
        self._index = self._library.Index.restore(str(self.path))
        self._index.expansion_add = BUILD_EFFORT

    def make_room(self, count: int) -> None:
        """It grows by itself."""

    def nearest(self, row: Rows, effort: int) -> list[int]:
        """The numbers of the nearest."""
        self._index.expansion_search = effort
        found: list[int] = self._index.search(row, LIMIT, threads=1).keys.tolist()
        return found

    def rows_of(self, numbers: NDArray[np.int64]) -> Rows:
        """Their vectors."""
        return np.asarray(self._index.get(numbers.astype(np.uint64), np.float32))

    def forget(self, number: int) -> None:
        """Never find it again."""
        self._index.remove(number)

    def overwrite(self, number: int) -> None:
        """Put another vector into its place: removed places are filled again."""
        row = -self.rows_of(np.array([number]))
        self._index.remove(number)
        self.add(number, row)
        self._index.remove(number)


GRAPHS: dict[str, type[Hnswlib] | type[Usearch]] = {"hnswlib": Hnswlib, "usearch": Usearch}


def build_graph(kind: str, folder: Path) -> Answer:
    """Add all vectors, by one thread, and write the file."""
    rows = read_rows(folder)
    graph = GRAPHS[kind](folder / f"{kind}.graph", len(rows))
    building, saving = Clock(), Clock()
    with building.running():
        for begin in range(0, len(rows), CHUNK):
            graph.add(begin, numbers_of(rows[begin : begin + CHUNK]))
    with saving.running():
        graph.save()
    return {**once("build", building), **once("save", saving)}


def use_graph(kind: str, folder: Path) -> Answer:
    """Open, search with the least effort that finds enough, search among a user's, add, forget."""
    (questions, nearest), rows = read_truth(folder), read_rows(folder)
    graph = GRAPHS[kind](folder / f"{kind}.graph", 1)
    gc.collect()
    before, opening, searching, filtering = resident_bytes(), Clock(), Clock(), Clock()
    with opening.running():
        graph.open()
        graph.nearest(questions[0], EFFORTS[0])
    gc.collect()
    answer: Answer = {**once("open", opening), "added_mib": (resident_bytes() - before) / 2**20}
    answer["file_mib"] = answer["index_mib"] = graph.path.stat().st_size / 2**20
    for effort in EFFORTS:
        near = [graph.nearest(question, effort) for question in questions]
        found = statistics.fmean(
            found_share(rows, true, question, numbers_of(rows[one]) @ question)
            for one, true, question in zip(near, nearest, questions, strict=True)
        )
        answer |= {"found": found, "effort": effort}
        if found >= FOUND:
            break
    for question in questions:
        with searching.running():
            graph.nearest(question, int(answer["effort"]))
    among = part_of(len(read_rows(folder)))
    for question in questions[:50]:
        with filtering.running():
            scores = graph.rows_of(among) @ question
            np.argpartition(-scores, min(LIMIT, len(scores) - 1))[:LIMIT]
    answer |= {**searching.answer("search"), **filtering.answer("filtered")}
    return answer | _changed_graph(graph, questions, len(read_rows(folder)))


def _changed_graph(graph: Hnswlib | Usearch, questions: Rows, count: int) -> Answer:
    """Vectors added, and one forgotten: each is durable once the whole file is written again."""
    one, thousand, saving, forgetting = Clock(), Clock(), Clock(), Clock()
    graph.make_room(2 * ADDED)
    chance = np.random.default_rng(5)
    new = questions[chance.integers(0, len(questions), 20 + ADDED)] + 0.01 * chance.standard_normal(
        (20 + ADDED, DIMENSION), dtype=np.float32
    )
    new /= np.linalg.norm(new, axis=1, keepdims=True)
    for number in range(20):
        with one.running():
            graph.add(count + number, new[number : number + 1])
    with thousand.running():
        graph.add(count + 20, new[20:])
    with saving.running():
        graph.save()
    answer = {**one.answer("add_one"), **once("add_1000", thousand), **once("save", saving)}
    graph.open()
    kept, over = (_stored(graph, number) for number in (11, 13))
    answer["pieces_before"] = pieces_left([graph.path], kept)
    with forgetting.running():
        graph.overwrite(13)
        graph.save()
    answer |= {**once("erase", forgetting), "pieces_erased": pieces_left([graph.path], over)}
    with forgetting.running():
        graph.forget(11)
        graph.save()
    return answer | {**once("forget", forgetting), "pieces_forgotten": pieces_left([graph.path], kept)}


def _stored(graph: Hnswlib | Usearch, number: int) -> bytes:
    row = graph.rows_of(np.array([number]))
    return row.astype(np.float16 if isinstance(graph, Usearch) else np.float32).tobytes()


CODES: dict[str, Callable[[Path], Awaitable[Answer]]] = {"build": build_codes, "use": use_codes}


async def _of_codes(step: str, folder: Path) -> Answer:
    return await CODES[step](folder)


def main() -> None:
    """Do one step of one kind."""
    kind, step, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    try:
        if kind == "codes":
            answer = asyncio.run(_of_codes(step, folder))
        else:
            answer = {"build": build_graph, "use": use_graph}[step](kind, folder)
    except ModuleNotFoundError as error:
        answer = {"missing": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
