"""Processes that share work: a line of JSON in for each task, lines of JSON out.

A process ends with its input, so that it never outlives the one that started it.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import BinaryIO

import msgspec

from memory_engine.core.cancellation import finished

LINE_BYTES_MAX = 1 << 24


def cores() -> int:
    """How many processes can run at once."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # a system that does not say
        return os.cpu_count() or 1


async def run_together(works: Sequence[Coroutine[object, object, None]]) -> None:
    """Run all at once; where one fails, or this is cancelled, the others are ended too, before this returns."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await finished(asyncio.wait(tasks))


@asynccontextmanager
async def worker_process(begin: str, python: str = sys.executable) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that runs the code `begin`; it has ended and its pipes are closed when the block ends, by an error too.

    Lines of JSON go to its standard input, and come back on its standard output.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            python,
            *("-c", begin),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LINE_BYTES_MAX,
        )
    )
    try:
        yield await finished(starting)
    finally:
        if not starting.cancelled() and starting.exception() is None:
            await finished(_ended(starting.result()))


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a process, close its pipes and wait for it: else it would outlive its loop."""
    if process.returncode is None:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.communicate()


async def tell_worker(process: asyncio.subprocess.Process, value: object) -> None:
    """Give a process a line. One that has ended is noticed when it does not answer."""
    if process.stdin is not None:
        process.stdin.write(msgspec.json.encode(value) + b"\n")
        try:
            await process.stdin.drain()
        except ConnectionError:
            return


@contextmanager
def answers_alone() -> Iterator[BinaryIO]:
    """In a worker: standard output, for its answers alone. What plug-ins print goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        yield answers
