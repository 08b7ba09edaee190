"""The command that serves the inspector: logs, states, contexts and lineage in a browser, read-only."""

import argparse
import asyncio
import os
import signal
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from memory_engine.cli.commands import Command, existing
from memory_engine.cli.terminal import Terminal
from memory_engine.core.secrets import without_password

PORT = 8477
PORTS = 65_535


def _declare_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=PORT, metavar="N", help=f"the port (default: {PORT}; 0 takes a free one)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="a loopback address (default: 127.0.0.1)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= PORTS:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 and {PORTS}")
    return value


_port.__name__ = "port"  # argparse's name for it in errors


async def inspect(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Serve the inspector until Ctrl-C, or until the process is told to end."""
    with _told_to_end() as ended:
        return await _serve(asked, terminal, ended)


async def _serve(asked: argparse.Namespace, terminal: Terminal, ended: asyncio.Event) -> int:
    from memory_engine.inspector.server import serving

    async with (
        existing(asked.db, read_only=True, entry_points=asked.plugins) as engine,
        serving(engine, port=asked.port, host=asked.host, path=without_password(asked.db)) as address,
    ):
        terminal.json({"address": address, "port": urlsplit(address).port, "pid": os.getpid()})
        terminal.say(address, "bold")
        terminal.say(f"shows {without_password(asked.db)}, read-only, to whoever has this address; Ctrl-C ends it")
        terminal.out.flush()
        if asked.open:
            await asyncio.to_thread(webbrowser.open, address)
        await ended.wait()
    return 0


@contextmanager
def _told_to_end() -> Iterator[asyncio.Event]:
    """Set by SIGTERM; Ctrl-C cancels the task, as it does everywhere."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows has no such handlers
        loop.add_signal_handler(signal.SIGTERM, ended.set)
    try:
        yield ended
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGTERM)


INSPECT = Command(_declare_inspect, inspect)
