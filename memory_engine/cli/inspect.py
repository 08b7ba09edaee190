"""The command that serves the inspector: logs, states, contexts and lineage in a browser."""

import argparse
import asyncio
import os
import secrets
import webbrowser
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from memory_engine.cli.commands import Command, Option, WrongArgument, existing, positive
from memory_engine.cli.schedule import told_to_end
from memory_engine.cli.terminal import Terminal
from memory_engine.core.aside import modules_spared
from memory_engine.core.bounded import read_file
from memory_engine.errors.base import shown_place

PORT = 8477
PORTS = 65_535


TOKEN_CHARS_MIN = 16


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= PORTS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {PORTS}")
    return value


_port.__name__ = "port"  # argparse's name for it in errors


async def inspect(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Serve the inspector until Ctrl-C or SIGTERM."""
    if asked.seq is not None and not asked.thread:
        raise WrongArgument("--seq is the number of an event in a thread: name it, too (--thread)")
    with told_to_end() as ended:
        return await _serve(asked, terminal, ended)


def token_in(path: str) -> str:
    """The token in a file; without a file, a new one is written. Raises `WrongArgument`."""
    try:
        with open(path, "x", encoding="ascii", opener=_private) as file:
            token = secrets.token_urlsafe()
            file.write(token + "\n")
            return token
    except FileExistsError:
        pass
    except OSError as error:
        raise WrongArgument(f"--token-file {path}: {error.strerror}") from None
    try:
        token = read_file(Path(path)).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongArgument(f"--token-file {path}: {error}") from None
    if len(token) < TOKEN_CHARS_MIN or not token.isprintable() or " " in token:
        why = f"a token has at least {TOKEN_CHARS_MIN} characters and no spaces; delete the file to get a new one"
        raise WrongArgument(f"--token-file {path}: {why}")
    return token


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _fragment(asked: argparse.Namespace) -> str:
    """The part of the address that says where to look."""
    shown = {"thread": asked.thread, **({"seq": asked.seq} if asked.seq is not None else {})}
    return f"#{urlencode(shown)}" if asked.thread else ""


async def _serve(asked: argparse.Namespace, terminal: Terminal, ended: asyncio.Event) -> int:
    from memory_engine.inspector.server import serving

    place = asked.place or asked.db
    shown, writer = shown_place(place), partial(existing, place, plugins=asked.plugins)
    token = token_in(asked.token_file) if asked.token_file else ""
    async with (
        existing(place, read_only=True, plugins=asked.plugins) as engine,
        serving(
            engine, port=asked.port, host=asked.host, token=token, path=shown, writer=writer if asked.write else None
        ) as served,
    ):
        address = served + _fragment(asked)
        terminal.json({"address": address, "port": urlsplit(address).port, "pid": os.getpid()})
        terminal.say(address, "bold")
        how = "and may write to it, for anyone who has" if asked.write else "read-only, to anyone who has"
        terminal.say(f"shows {shown}, {how} this address; Ctrl-C ends it")
        terminal.out.flush()
        if asked.open:
            await asyncio.to_thread(webbrowser.open, address)
        with modules_spared():
            await ended.wait()
    return 0


INSPECT = Command.of(
    inspect,
    Option.word("place", "PLACE", "the database, as --db names it"),
    Option.value("--port", "N", f"the port (default: {PORT}; 0 takes a free one)", _port, default=PORT),
    Option.value("--host", "ADDRESS", "a loopback address (default: 127.0.0.1)", default="127.0.0.1"),
    Option.flag("--write", "let the page undo compactions and keep what-ifs as forks"),
    Option.value("--token-file", "FILE", "keep the address's token there, so that links survive a restart"),
    Option.flag("--open", "open the page in the browser"),
    Option.value("--thread", "THREAD", "the thread that the address shows first", default=""),
    Option.value("--seq", "N", "the event of --thread that it shows first", positive),
)
