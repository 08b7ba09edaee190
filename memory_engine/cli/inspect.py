"""The command that serves the inspector: logs, states, contexts and lineage in a browser, read-only."""

import argparse
import asyncio
import os
import webbrowser
from urllib.parse import urlsplit

from memory_engine.cli.commands import Command, existing
from memory_engine.cli.schedule import told_to_end
from memory_engine.cli.terminal import Terminal
from memory_engine.errors.base import shown_place

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
    with told_to_end() as ended:
        return await _serve(asked, terminal, ended)


async def _serve(asked: argparse.Namespace, terminal: Terminal, ended: asyncio.Event) -> int:
    from memory_engine.inspector.server import serving

    async with (
        existing(asked.db, read_only=True, plugins=asked.plugins) as engine,
        serving(engine, port=asked.port, host=asked.host, path=shown_place(asked.db)) as address,
    ):
        terminal.json({"address": address, "port": urlsplit(address).port, "pid": os.getpid()})
        terminal.say(address, "bold")
        terminal.say(f"shows {shown_place(asked.db)}, read-only, to whoever has this address; Ctrl-C ends it")
        terminal.out.flush()
        if asked.open:
            await asyncio.to_thread(webbrowser.open, address)
        await ended.wait()
    return 0


INSPECT = Command(_declare_inspect, inspect)
