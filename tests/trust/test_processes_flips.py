"""Whatever bit of a row is another, what is read of it is right or a typed error, never one of the interpreter."""

import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, RecordedEvent, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.errors import MemoryEngineError
from memory_engine.testing import HashEmbedder

TABLES = ("threads", "heads", "events", "blobs", "live", "checkpoints")


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a row in every table."""
    path = tmp_path_factory.mktemp("whole") / "m.db"
    async with memory_engine.open(str(path), embedder=HashEmbedder()) as engine:
        thread = await engine.create_thread("t", user_id="u1", metadata={"a": "b"})
        for n in range(3):
            await thread.dispatch(UserMessage(content=f"Hello {n}, plants"))
        await thread.dispatch(UserMessage(content="x" * 70_000))
        await thread.scratchpad.write("Revenue dips")
        await thread.search("plants")
        await thread.fork(2)
    return path


def flipped(path: Path, table: str, dice: random.Random) -> None:
    """Change one bit of a value of each column of a table, in a row of each."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        for column in [row[1] for row in raw.execute(f"PRAGMA table_info ({table})")]:
            if dice.random() < 0.7:
                continue
            values = [row[0] for row in raw.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")]
            value = dice.choice(values) if values else None
            if isinstance(value, int):
                changed: object = value ^ 1 << dice.randrange(40)
                kind = "INTEGER"
            elif isinstance(value, str | bytes) and value:
                content = bytearray(value.encode() if isinstance(value, str) else value)
                content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
                changed, kind = bytes(content), "TEXT" if isinstance(value, str) else "BLOB"
            else:
                continue
            cast = f"CAST(? AS {kind})"
            raw.execute(f"UPDATE OR IGNORE {table} SET {column} = {cast} WHERE {column} = ?", (changed, value))


async def every(events: AsyncIterator[RecordedEvent]) -> list[RecordedEvent]:
    """The whole log."""
    return [event async for event in events]


def readings(engine: Engine) -> list[Callable[[], Awaitable[object]]]:
    """What can be read of the thread, and of the engine."""
    thread = engine.thread("t")
    views = [lambda name=one.name: thread.views.read(name) for one in kernel_of(engine).projections]
    return [
        *(thread.info, thread.state, thread.context, lambda: every(thread.events()), lambda: thread.replay.latest(3)),
        *(lambda: thread.search("plants"), lambda: thread.at(3), thread.replay.anchor, *views),
        *(engine.threads, engine.stats, engine.admin.anchors, engine.verify),
    ]


@pytest.mark.parametrize("table", TABLES)
async def test_a_flipped_bit_gives_typed_errors(whole: Path, tmp_path: Path, table: str) -> None:
    """Whichever reading meets it."""
    dice = random.Random(table)
    for n in range(3):
        path = tmp_path / f"{n}.db"
        shutil.copy(whole, path)
        flipped(path, table, dice)
        try:
            async with memory_engine.open(str(path), embedder=HashEmbedder()) as engine:
                for read in readings(engine):
                    try:
                        await read()
                    except MemoryEngineError:
                        continue
        except MemoryEngineError:
            continue
