"""The type of commands, the arguments that many of them take, and the database that they work on."""

import argparse
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from memory_engine.cli.options import VARIABLE, PluginChoice, did_you_mean, key_for
from memory_engine.cli.terminal import Terminal
from memory_engine.core.lazy import lazy_module, regex
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.tokens import TokenCounter
from memory_engine.engine import Engine
from memory_engine.errors import InvalidInput, MemoryEngineError, ThreadNotFound
from memory_engine.errors.base import facts, is_url, shown_place
from memory_engine.plugins import Plugin, installed_plugins, plugin_at
from memory_engine.runtime.config import EngineConfig
from memory_engine.store.reader import MomentLike
from memory_engine.wiring import open as open_engine

if TYPE_CHECKING:
    from memory_engine import options
    from memory_engine.options import Parts
else:
    options = lazy_module("memory_engine.options")

MOMENT = "a seq, an event's id, or a time (UTC unless it names its zone)"
LOOK_FIRST = "say --yes (or look first: --dry-run)"
NEAR_MAX = 2_000
"""How many of the latest threads "did you mean" looks through."""
_TIME = regex(r"\d{4}-\d\d-\d\d([T ]|$)")

CommandFunction = Callable[[argparse.Namespace, Terminal], Awaitable[int]]
"""Does a command's work and returns the exit code. Raises `MemoryEngineError` if it cannot."""


@frozen
class Command:
    """A word of the command line, named in `program.COMMANDS`. `declare` adds its own arguments to a parser."""

    declare: Callable[[argparse.ArgumentParser], None]
    run: CommandFunction


@facts
class WrongArgument(InvalidInput):
    """An argument that the database, or another argument, rules out."""

    why: str

    def __str__(self) -> str:
        return self.why


def whole(text: str) -> int:
    """A whole number from 0 on, as argparse wants its types."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def positive(text: str) -> int:
    """A whole number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def reading_limits(text: str) -> ReadingLimits:
    """`NAME=N,…`: limits of reading files that replace the defaults."""
    pairs = (one.partition("=") for one in text.split(","))
    try:
        return evolve(DEFAULT_LIMITS, **{name.strip(): int(count) for name, _, count in pairs})
    except (InvalidInput, TypeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def moment(text: str) -> MomentLike:
    """A seq, an ISO time with its zone, or an event's id, as argparse wants its types."""
    if text.isascii() and text.isdecimal():
        return int(text)
    return time(text) if _TIME.match(text) else text


def time(text: str) -> datetime:
    """An ISO time with its zone, as argparse wants its types."""
    try:
        if not _TIME.match(text):
            raise ValueError("write it as 2026-05-10 or 2026-05-10T14:30+02:00")
        return aware(datetime.fromisoformat(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is not a time: {error}") from None


def aware(given: datetime) -> datetime:
    """The time; without a zone it is UTC, as all times here are shown."""
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


def pair(text: str) -> tuple[str, str]:
    """`KEY=VALUE`, as argparse wants its types."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text} is not KEY=VALUE")
    return key, value


whole.__name__ = positive.__name__ = "whole number"  # argparse's name for them in errors


def no_arguments(_parser: argparse.ArgumentParser) -> None:
    """For a command without arguments."""


def add_thread(parser: argparse.ArgumentParser) -> None:
    """The thread that a command is about."""
    parser.add_argument("thread", metavar="THREAD", help="a thread's id (`memory-engine threads` lists them)")


def add_yes(parser: argparse.ArgumentParser) -> None:
    """The option that skips the question."""
    parser.add_argument("--yes", action="store_true", help="do not ask first (required with --json, and in scripts)")


def agreed(asked: argparse.Namespace, terminal: Terminal, question: str, advice: str = LOOK_FIRST) -> bool:
    """Ask before an act that cannot be undone. Raises `WrongArgument` without a person to ask."""
    if asked.yes:
        return True
    if terminal.as_json or not (terminal.is_terminal and sys.stdin.isatty()):
        raise WrongArgument(f"{question} This cannot be undone: {advice}")
    if terminal.confirmed(question):
        return True
    terminal.say("nothing was changed")
    return False


@facts
class NoDatabase(MemoryEngineError):
    """A command that reads was given a path with no database."""

    path: str
    why: str

    def __str__(self) -> str:
        place = shown_place(self.path)
        return (
            f"{place}: {self.why}; name a database with --db or ${VARIABLE}, "
            f"or make one: memory-engine ingest FILE --db {place}"
        )


NO_PLUGINS = PluginChoice(published=False)


def chosen_plugins(choice: PluginChoice) -> list[Plugin]:
    """The plug-ins to work with."""
    return [*(installed_plugins() if choice.published else ()), *map(plugin_at, choice.named)]


@asynccontextmanager
async def existing(
    path: str,
    tokens: TokenCounter | None = None,
    *,
    config: EngineConfig | None = None,
    read_only: bool = False,
    plugins: PluginChoice = NO_PLUGINS,
) -> AsyncIterator[Engine]:
    """Open an existing database, with the key that the command line names. Raises `NoDatabase`, and never makes a file.

    With `read_only` nothing in it is changed.
    """
    check_is_there(path)
    key = key_for(path)
    # a command is over before an index would be made for the searches after it
    config = config or EngineConfig(read_only=read_only, search_index_timeout_s=inf)
    parts = None if tokens is None else options.Parts(tokens=tokens)
    async with open_engine(path, key=key, parts=parts, config=config, plugins=chosen_plugins(plugins)) as engine:
        try:
            yield engine
        except ThreadNotFound as error:
            error.add_note(await _near(engine, error.thread_id))
            raise


async def _near(engine: Engine, thread_id: str) -> str:
    """Suggest the latest threads whose ids are like an unknown one; "" if none is."""
    with suppress(MemoryEngineError):
        found = await engine.threads(order="updated", limit=NEAR_MAX)
        return did_you_mean(thread_id, [info.id for info in found])
    return ""


def check_is_there(path: str) -> None:
    """Raise `NoDatabase` for a path with no database. URLs are left to their back ends."""
    if is_url(path):
        return
    if path == ":memory:":
        raise NoDatabase(path, "it is always empty at first")
    file = Path(path)
    if not file.exists():
        raise NoDatabase(path, "there is no such file")
    if file.is_dir():
        raise NoDatabase(path, "it is a directory")
    if not file.stat().st_size:
        raise NoDatabase(path, "the file is empty")


@asynccontextmanager
async def writable(
    path: str,
    *,
    config: EngineConfig | None = None,
    plugins: PluginChoice = NO_PLUGINS,
    key: Callable[[str], str | None] = key_for,
    parts: "Parts | None" = None,
) -> AsyncIterator[Engine]:
    """Open a database, or make it if it does not exist. `key` gives the key of the place."""
    config = config or EngineConfig()
    async with open_engine(path, key=key(path), config=config, plugins=chosen_plugins(plugins), parts=parts) as engine:
        yield engine
