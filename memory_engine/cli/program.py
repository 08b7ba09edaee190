"""The program: parses the command line, runs the command, and turns what goes wrong into an exit code."""

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Sequence

from memory_engine.cli.anchoring import ANCHORS
from memory_engine.cli.commands import FAILED, INTERRUPTED, Command, add_shared
from memory_engine.cli.comparing import COMPARE_COMPACTORS
from memory_engine.cli.databases import database_path
from memory_engine.cli.demo import DEMO
from memory_engine.cli.documents import DOCS
from memory_engine.cli.explaining import BISECT, DIFF, WHY
from memory_engine.cli.exporting import EXPORT, IMPORT
from memory_engine.cli.generating import TO_PYTEST
from memory_engine.cli.ingesting import INGEST
from memory_engine.cli.inspecting import INSPECT
from memory_engine.cli.logs import LOG
from memory_engine.cli.looking import CONTEXT, SHOW, STATS, THREADS
from memory_engine.cli.rebuilding import REBUILD
from memory_engine.cli.reporting import REPORT
from memory_engine.cli.searching import SEARCH
from memory_engine.cli.terminal import Terminal
from memory_engine.cli.undoing import COMPACTIONS, LEDGER, REDO, UNDO
from memory_engine.cli.viewing import VIEW
from memory_engine.cli.what_if import FORK, WHAT_IF
from memory_engine.cli.working import COMPACT, VERIFY
from memory_engine.errors import EventNotFound, MemoryEngineError, ThreadNotFound

COMMANDS: tuple[Command, ...] = (
    DEMO, INGEST, THREADS, LOG, SHOW, CONTEXT, SEARCH, REPORT, VIEW, DIFF, WHY, BISECT, COMPACT, COMPACTIONS, UNDO,
    REDO, LEDGER, VERIFY, REBUILD, TO_PYTEST, EXPORT, IMPORT, ANCHORS, STATS, DOCS, INSPECT, FORK, WHAT_IF,
    COMPARE_COMPACTORS,
)  # fmt: skip
_EPILOG = "exit codes: 0 done, 1 something wrong was found, 2 it could not be done, 130 interrupted"


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="memory-engine",
        description="An event-sourced memory for agents: logs, states, compacted memory and contexts.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    add_shared(parser)
    words = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in COMMANDS:
        inner = words.add_parser(command.name, help=command.help, description=command.help, allow_abbrev=False)
        command.declare(inner)
        add_shared(inner)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (default: the process's own) and return the exit code.

    Raises `SystemExit` for `--help` and for arguments that argparse refuses.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = build_parser()
    asked = parser.parse_args(argv)
    if asked.command is None:
        parser.print_help()
        return FAILED
    asked.is_db_given = "db" in asked
    asked.db = database_path(getattr(asked, "db", None))
    terminal = Terminal(as_json="json" in asked)
    try:
        return _run({command.name: command for command in COMMANDS}[asked.command], asked, terminal)
    except KeyboardInterrupt:
        terminal.warn("interrupted")
        return INTERRUPTED


def _run(command: Command, asked: argparse.Namespace, terminal: Terminal) -> int:
    async def run() -> int:
        return await command.run(asked, terminal)

    try:
        code = asyncio.run(run())
        terminal.out.flush()
        return code
    except MemoryEngineError as error:
        return _failed(terminal, type(error).__name__, _told(error))
    except BrokenPipeError:
        _let_go(terminal)
        return 0
    except OSError as error:
        return _failed(terminal, type(error).__name__, _of_system(error))


def _told(error: MemoryEngineError) -> str:
    """What an error says, with what a person at the command line can do about it."""
    if isinstance(error, ThreadNotFound):
        return f"thread {error.thread_id!r} does not exist; `memory-engine threads` lists those that do"
    if isinstance(error, EventNotFound):
        what = "give a seq, an event's id (`memory-engine log --json`), or a time such as 2025-03-20T09:15"
        return f"thread {error.thread_id!r} has no event {error.event_id!r}; {what}"
    return str(error)


def _of_system(error: OSError) -> str:
    """The file and the reason, without the number."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def _failed(terminal: Terminal, kind: str, message: str) -> int:
    """Say what went wrong: to programs on standard output, to people on standard error, in one line."""
    if terminal.as_json:
        terminal.json({"error": {"type": kind, "message": message}})
    else:
        terminal.warn(f"memory-engine: error: {' '.join(message.split())}")
    return FAILED


def _let_go(terminal: Terminal) -> None:
    """Whoever reads has read enough: what is still buffered goes nowhere, without a word at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), terminal.out.fileno())
    except (OSError, ValueError):
        return
