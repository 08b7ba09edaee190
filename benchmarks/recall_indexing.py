"""The cost of being searchable: every dispatch, and bringing documents."""

import sqlite3
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter_ns

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, Rounds
from benchmarks.ours import WITHOUT_COMPACTION, as_event, database_bytes, dispatch_timed
from benchmarks.payloads import messages
from benchmarks.recall_texts import Talk
from benchmarks.setting import Setting, one_core, say, settle_memory
from memory_engine import Event, Thread

BLOCK = 50
BARRED = "the messages of `dispatch`"
LENGTHS = (100, 650, 4_000)
PASSAGES_A_TRANSACTION = 256
BARE = "bare sqlite3: the same passages into FTS5 (porter), the same transactions"
Make = Callable[[int], Sequence[Event]]


async def dispatching(setting: Setting) -> list[Figure]:
    """The same messages to a thread that was searched once, and so is indexed, and to one that was not."""
    source = (as_event(message) for message in messages(1))
    talk = Talk()
    cases: list[tuple[str, Make]] = [(BARRED, lambda count: list(islice(source, count)))]
    cases += [(f"{chars:,} characters", partial(talk.events, chars)) for chars in LENGTHS]
    found: list[Figure] = []
    for name, make in cases:
        say(f"  dispatch: {name}")
        with one_core():
            plain, indexed = await _in_turn(setting, make)
        found += _overhead(setting, name, (plain, indexed))
    return found


async def _in_turn(setting: Setting, make: Make) -> tuple[Rounds, Rounds]:
    plain, indexed = Rounds(), Rounds()
    path = setting.new_path("recall-dispatch")
    async with memory_engine.open(str(path), config=WITHOUT_COMPACTION) as engine:
        threads: list[tuple[Rounds, Thread]] = [
            (plain, await engine.create_thread()),
            (indexed, await engine.create_thread()),
        ]
        for _, thread in threads:
            await dispatch_timed(thread, make(5))
        await threads[1][1].search("anything")
        for number in range(setting.size(60, 2)):
            if not number % 10:
                settle_memory()
            batch = make(BLOCK)
            for rounds, thread in threads if number % 2 else threads[::-1]:
                rounds.add(await dispatch_timed(thread, batch))
    return plain, indexed


def _overhead(setting: Setting, name: str, taken: tuple[Rounds, Rounds]) -> list[Figure]:
    plain, indexed = taken
    bar = Bar("ratio", "<=", 1.3) if name == BARRED else None
    sides = {"p50": (indexed.p50_us, plain.p50_us), "mean": (indexed.mean_us, plain.mean_us)}
    return [
        Figure(
            bench="recall",
            case=f"dispatch to an indexed thread, one core, {name}, {unit}",
            value=ours,
            unit=f"us, {unit}",
            reference=Reference("to a thread never searched", theirs),
            ratio_best=indexed.best_us / plain.best_us if unit == "p50" else None,
            bar=bar,
            asserted=not setting.quick,
            detail={"p99_us": indexed.p99_us, "reference_p99_us": plain.p99_us},
        )
        for unit, (ours, theirs) in sides.items()
    ]


async def documents(setting: Setting) -> list[Figure]:
    """Text files read, split and brought to a tenant that is searched; bare FTS5 is given their passages ready."""
    cases = (
        ("documents of about 40 passages", setting.size(100, 3), 40, Bar("ratio", ">=", 0.5)),
        ("documents of about 1,000 passages", setting.size(4, 1), 1_000, Bar("ratio", ">=", 0.5)),
        ("documents of one passage", setting.size(1_000, 10), 1, None),
    )
    return [
        await _brought(setting, name, (count, setting.size(size, min(size, 40))), bar)
        for name, count, size, bar in cases
    ]


async def _brought(setting: Setting, name: str, shape: tuple[int, int], bar: Bar | None) -> Figure:
    say(f"  {name}")
    ours: list[float] = []
    bare: list[float] = []
    passages = 0
    sizes = (0, 0)
    for seed in range(setting.size(3, 1)):
        settle_memory()
        path, beside = setting.new_path("documents"), setting.new_path("documents-bare")
        folder = setting.new_path("folder").with_suffix("")
        _write(folder, Talk(seed), shape)
        with one_core():
            taken, texts = await _ingest(path, folder)
            ours.append(taken)
            bare.append(_insert(beside, texts))
        passages = sum(map(len, texts))
        sizes = (database_bytes(path), database_bytes(beside))
    return Figure(
        bench="recall",
        case=f"{name} brought to an indexed tenant, one core",
        value=passages / statistics.median(ours),
        unit="passages/s",
        reference=Reference(BARE, passages / statistics.median(bare)),
        ratio_best=min(bare) / min(ours),
        bar=bar,
        asserted=not setting.quick,
        detail={
            "documents": shape[0],
            "passages": passages,
            "file_kib": sizes[0] / 1024,
            "reference_file_kib": sizes[1] / 1024,
        },
    )


def _write(folder: Path, talk: Talk, shape: tuple[int, int]) -> None:
    folder.mkdir()
    count, passages = shape
    for number in range(count):
        (folder / f"{number:05}.txt").write_text(talk.document(passages), encoding="utf-8")


async def _ingest(path: Path, folder: Path) -> tuple[float, list[list[str]]]:
    """Seconds, and the passages of each document."""
    async with memory_engine.open(str(path)) as engine:
        tenant = engine.tenant("t")
        await tenant.documents.add_text("Something to search for.", title="first")
        await tenant.documents.search("something")
        begun = perf_counter_ns()
        report = await tenant.documents.ingest([folder])
        taken = (perf_counter_ns() - begun) / 1e9
        if report.failed:
            raise report.failed[0]
        found = await tenant.documents.list()
        texts = [[one.text for one in await tenant.documents.passages(document.id)] for document in found]
    return taken, texts


def _insert(path: Path, documents: Sequence[Sequence[str]]) -> float:
    """Seconds that the same passages take without anything around them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE VIRTUAL TABLE passages USING fts5 (text, tokenize = 'porter')")
        begun = perf_counter_ns()
        for batch in _batches(documents):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO passages (text) VALUES (?)", [(text,) for text in batch])
            connection.execute("COMMIT")
        return (perf_counter_ns() - begun) / 1e9


def _batches(documents: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    for texts in documents:
        for at in range(0, len(texts), PASSAGES_A_TRANSACTION):
            yield texts[at : at + PASSAGES_A_TRANSACTION]
