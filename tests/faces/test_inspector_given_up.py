"""Work of the inspector that nobody waits for any more, on a thread and in a loop of its own."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.inspector.offload import apart


async def make(path: str) -> None:
    """A thread with one event."""
    async with memory_engine.open(path) as engine:
        await (await engine.create_thread("t")).dispatch(UserMessage(content="Hello"))


async def test_reads_that_are_given_up_leave_the_store_readable(tmp_path: Path) -> None:
    """Whoever runs through a log gives up one request after another; a reader of the store must not die of it.

    A read told its result to a loop that had been closed, which ended the thread of its connection: from then on every
    second read waited for ever.
    """
    path = str(tmp_path / "x.db")
    await make(path)
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:

        async def reading() -> None:
            while True:
                await kernel_of(engine).store.head("t")

        for _ in range(100):
            task = asyncio.create_task(apart(kernel_of(engine), reading))
            await kernel_of(engine).store.head("t")
            await kernel_of(engine).store.head("t")
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert [1, 1, 1, 1] == [(await kernel_of(engine).store.head("t")).seq for _ in range(4)]


async def test_work_apart_gives_and_raises_as_it_would_here(tmp_path: Path) -> None:
    """A result comes back, an error too; an error that the work takes is none."""
    path = str(tmp_path / "x.db")
    await make(path)
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:

        async def mended() -> int:
            try:
                await kernel_of(engine).store.head("nobody")
            except memory_engine.errors.ThreadNotFound:
                return (await kernel_of(engine).store.head("t")).seq
            return 0

        async def failing() -> int:
            return (await kernel_of(engine).store.head("nobody")).seq

        assert 1 == await apart(kernel_of(engine), mended)
        with pytest.raises(memory_engine.errors.ThreadNotFound):
            await apart(kernel_of(engine), failing)
