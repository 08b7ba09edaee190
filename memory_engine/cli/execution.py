"""Running a command: an error becomes a line on standard error, or JSON, and an exit code."""

import argparse
import asyncio
import os
import shlex

from memory_engine.cli.commands import Command
from memory_engine.cli.options import FAILED, INTERRUPTED
from memory_engine.cli.terminal import Terminal
from memory_engine.errors import (
    EventNotFound,
    MemoryEngineError,
    ScopeNotAllowed,
    ThreadExists,
    ThreadNotFound,
    UnknownMemoryFile,
)
from memory_engine.errors.base import shown_place

_SCOPE_OPTIONS = {
    "kind": "--kind",
    "tenant_id": "--tenant",
    "user_id": "--user",
    "agent_id": "--agent",
    "parent_id": "--parent",
}


def run(command: Command, asked: argparse.Namespace) -> int:
    """Run a command with what was asked of it and return the exit code."""
    terminal = Terminal(as_json="json" in asked)
    try:
        return _run(command, asked, terminal)
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
        return _failed(terminal, type(error).__name__, _error_with_advice(error))
    except BrokenPipeError:
        _let_go(terminal)
        return 0
    except OSError as error:
        return _failed(terminal, type(error).__name__, _of_system(error))


def _error_with_advice(error: MemoryEngineError) -> str:
    """The text of an error, with advice for a person at the command line."""
    if isinstance(error, ThreadNotFound):
        near = "".join(getattr(error, "__notes__", ()))
        return f"thread {error.thread_id!r} does not exist" + (near or "; `memory-engine threads` lists those that do")
    if isinstance(error, EventNotFound):
        what = "give a seq, an event's id (`memory-engine log --json`), or a time such as 2025-03-20T09:15"
        return f"thread {error.thread_id!r} has no event {error.event_id!r}; {what}"
    if isinstance(error, ThreadExists) and not error.deleted:
        return f"thread {error.thread_id!r} exists already: give another id, or none for a new one"
    if isinstance(error, UnknownMemoryFile):
        return str(error).replace("`memory_files.list()`", f"`memory-engine memory-files {error.thread_id}`")
    if isinstance(error, ScopeNotAllowed):
        said = ", ".join(f"{name} {value!r}" for name, value, _ in error.claims)
        options = " ".join(f"{_SCOPE_OPTIONS[name]} {shlex.quote(value)}" for name, value, _ in error.claims)
        what = f"if it may be that one's, add {options}; --as-exported is for an archive of your own"
        return f"{error.path} says that its thread is of {said}, and nothing was imported; {what}"
    return str(error)


def _of_system(error: OSError) -> str:
    """The file and the reason, without the error number."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def _failed(terminal: Terminal, kind: str, message: str) -> int:
    """Say what went wrong: to programs on standard output, to people on standard error, in one line.

    Drivers and other libraries repeat what they were given, so passwords in URLs are removed.
    """
    message = shown_place(message)
    if terminal.as_json:
        terminal.json({"error": {"type": kind, "message": message}})
    else:
        terminal.error(f"{' '.join(message.split())}")
    return FAILED


def _let_go(terminal: Terminal) -> None:
    """The reader closed the pipe: drop what is still buffered, so that Python says nothing at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), terminal.out.fileno())
    except (OSError, ValueError):
        return
