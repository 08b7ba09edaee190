"""Commands that repeat until they are interrupted."""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from memory_engine.administration.retention import read_age
from memory_engine.cli.terminal import Terminal
from memory_engine.errors import MemoryEngineError


def add_every(parser: argparse.ArgumentParser) -> None:
    """The option `--every`."""
    parser.add_argument(
        "--every", metavar="AGE", type=_age, help='repeat at this interval, such as "24 hours", until Ctrl-C'
    )


def _age(text: str) -> timedelta:
    """A duration above zero, as argparse wants its types."""
    try:
        age = read_age(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not age:
        raise argparse.ArgumentTypeError("it must be above zero")
    return age


async def again_and_again(every: timedelta, terminal: Terminal, run: Callable[[], Awaitable[object]]) -> int:
    """Run now and every `every`, until SIGTERM (exit code 0) or Ctrl-C, which ends it like any command.

    A run that fails (a busy file, a full disk) is reported, and tried again the next time.
    """
    with told_to_end() as ended:
        while not ended.is_set():
            try:
                await run()
            except BrokenPipeError:  # the output has no reader any more
                raise
            except (MemoryEngineError, OSError) as error:
                terminal.warn(f"memory-engine: {error}")
            terminal.out.flush()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), every.total_seconds())
    return 0


@contextmanager
def told_to_end() -> Iterator[asyncio.Event]:
    """Set by SIGTERM; Ctrl-C cancels the task, as it does everywhere."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows has no such handlers
        loop.add_signal_handler(signal.SIGTERM, ended.set)
    try:
        yield ended
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGTERM)
