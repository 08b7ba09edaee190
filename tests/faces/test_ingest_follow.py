"""A file that is still being written is followed: what is appended comes in, in its order and once."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import memory_engine
from memory_engine import Engine
from memory_engine.core.aside import on_thread
from memory_engine.ingest import Ingestion, IngestOptions, IngestReport
from memory_engine.ingest.following import LiveFile
from tests.faces.test_ingest_tools import SESSION
from tests.patience import PATIENCE_S

Until = Callable[[int], Awaitable[None]]


@asynccontextmanager
async def followed(engine: Engine, path: Path) -> AsyncIterator[tuple[Until, IngestReport]]:
    """Follow a file meanwhile; gives a wait until so many events were added and the file holds no more."""
    following, report = LiveFile(path), IngestReport()
    paused = asyncio.Condition()
    added = [0]

    def on_pause(now: IngestReport) -> None:
        added[0] = sum(thread.added for thread in now.threads)
        background.add(asyncio.ensure_future(told()))

    async def told() -> None:
        async with paused:
            paused.notify_all()

    async def until(count: int) -> None:
        async with paused, asyncio.timeout(PATIENCE_S):
            await paused.wait_for(lambda: added[0] >= count)
        assert count == added[0]

    async def run() -> None:
        file = await on_thread(following.file)
        await Ingestion(engine, IngestOptions(), report, on_pause=on_pause).recording(file)

    background: set[asyncio.Future[None]] = set()
    task = asyncio.ensure_future(run())
    try:
        yield until, report
    finally:
        following.stop.set()
        with suppress(asyncio.CancelledError):
            await task


def row(text: str, role: str = "user") -> str:
    """A line of a message."""
    return json.dumps({"role": role, "content": text}) + "\n"


def append(path: Path, text: str) -> None:
    """Write on."""
    with path.open("a") as file:
        file.write(text)


async def texts(engine: Engine, thread_id: str) -> list[str]:
    """What was said."""
    return [str(getattr(event.event, "content", "")) async for event in engine.thread(thread_id).events()]


async def test_lines_come_as_they_are_written(tmp_path: Path) -> None:
    """A line that was written in half is waited for."""
    path = tmp_path / "s.jsonl"
    path.write_text(row("one"))
    async with memory_engine.open(":memory:") as engine, followed(engine, path) as (until, report):
        await until(1)
        append(path, row("two") + row("three")[:14])
        await until(2)
        append(path, row("three")[14:])
        await until(3)
        assert ["one", "two", "three"] == await texts(engine, "s")
        assert [] == report.errors


async def test_a_file_that_is_replaced_or_cut_goes_on(tmp_path: Path) -> None:
    """What stood at the end of the old one is not lost."""
    path = tmp_path / "s.jsonl"
    path.write_text(row("one"))
    async with memory_engine.open(":memory:") as engine, followed(engine, path) as (until, _):
        await until(1)
        append(path, row("two"))
        path.rename(tmp_path / "s.jsonl.1")
        path.write_text(row("three"))
        await until(3)
        path.write_text("")
        path.write_text(row("4"))
        await until(4)
        assert ["one", "two", "three", "4"] == await texts(engine, "s")


async def test_a_session_that_is_followed_is_the_session(tmp_path: Path) -> None:
    """Written line by line, and followed again from its start, it adds nothing more."""
    path = tmp_path / "s.jsonl"
    path.write_text("")
    async with memory_engine.open(":memory:") as engine:
        async with followed(engine, path) as (until, _):
            for upto, count in ((5, 3), (8, 6), (len(SESSION), 9)):
                path.write_text("".join(json.dumps(one) + "\n" for one in SESSION[:upto]))
                await until(count)
        again = Ingestion(engine, IngestOptions())
        assert await again.file(path)
        assert [(0, 9)] == [(thread.added, thread.known) for thread in again.report.threads]
