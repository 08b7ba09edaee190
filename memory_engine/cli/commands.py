"""Commands: how one is declared, the arguments that many of them take, and the database that they work on.

A command that asks a thread or the store a question is its options and a function that returns a report
(`Command.of_thread`, `Command.of_store`): the database is opened for it, and its report printed. One that serves,
streams or asks a person has a `run` of its own.
"""

import argparse
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from memory_engine.cli.options import VARIABLE, PluginChoice, add_shared, did_you_mean, key_for
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.lazy import lazy_module, regex
from memory_engine.core.tokens import TokenCounter
from memory_engine.engine import Engine
from memory_engine.errors import InvalidInput, MemoryEngineError, ThreadNotFound
from memory_engine.errors.base import facts, is_url, shown_place
from memory_engine.plugins import Plugin, installed_plugins, plugin_at
from memory_engine.reports import Drawable, Printout
from memory_engine.runtime.config import EngineConfig
from memory_engine.store.reader import MomentLike
from memory_engine.thread import Thread
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


Declare = Callable[[argparse.ArgumentParser], object]
"""Adds arguments to a parser."""
Kind = Callable[[str], object]
"""Makes an argument's value from its text, as argparse wants its types."""
Asks = Callable[[argparse.Namespace], bool]
"""What the arguments say about a command."""
Report = Drawable | Printout


@frozen
class Command:
    """A word of the command line, named in `program.COMMANDS`. `declare` adds its own arguments to a parser."""

    declare: Declare
    run: CommandFunction

    @classmethod
    def of(cls, run: CommandFunction, *options: Declare) -> "Command":
        """A command with these arguments, in order."""

        def declare(parser: argparse.ArgumentParser) -> None:
            for option in options:
                option(parser)

        return cls(declare, run)

    @classmethod
    def of_actions(cls, actions: "Mapping[str, tuple[str, Command]]", *options: Declare) -> "Command":
        """A command of several actions (`docs add`), by name: the purpose of each, and what it does.

        Each takes the options before its own.
        """

        def declare(parser: argparse.ArgumentParser) -> None:
            words = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
            for name, (what, action) in actions.items():
                inner = words.add_parser(name, help=what, description=what, allow_abbrev=False)
                for add in (*options, action.declare, add_shared):
                    add(inner)

        return cls(declare, lambda asked, terminal: actions[asked.action][1].run(asked, terminal))

    @classmethod
    def of_store(
        cls,
        ask: Callable[[Engine, argparse.Namespace], Awaitable[Report]],
        *options: Declare,
        writes: Asks = lambda _: False,
        check: Callable[[argparse.Namespace], object] = lambda _: None,
        busy: str = "",
    ) -> "Command":
        """A command that opens the database, and prints the report that `ask` returns.

        `writes` says of the arguments whether the database may be changed. `check` sees them before it is opened. A
        command that is `busy` shows its progress: `asked.progress`.
        """

        async def run(asked: argparse.Namespace, terminal: Terminal) -> int:
            check(asked)
            async with existing(asked.db, read_only=not writes(asked), plugins=asked.plugins) as engine:
                with Progress(busy, terminal) if busy else nullcontext() as asked.progress:
                    found = await ask(engine, asked)
            return terminal.show(found)

        return cls.of(run, *options)

    @classmethod
    def of_thread(
        cls,
        ask: Callable[[Thread, argparse.Namespace], Awaitable[Report]],
        *options: Declare,
        writes: Asks = lambda _: False,
        check: Callable[[argparse.Namespace], object] = lambda _: None,
        busy: str = "",
    ) -> "Command":
        """The same of a THREAD, which must exist."""

        async def ask_thread(engine: Engine, asked: argparse.Namespace) -> Report:
            thread = engine.thread(asked.thread)
            await thread.info()
            return await ask(thread, asked)

        return cls.of_store(ask_thread, add_thread, *options, writes=writes, check=check, busy=busy)


def always(_asked: argparse.Namespace) -> bool:
    """For commands that may write, whatever their arguments."""
    return True


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


class Option:
    """The arguments of commands: each of these adds one to a parser."""

    @staticmethod
    def flag(name: str, what: str) -> Declare:
        """An option without a value."""
        return lambda parser: parser.add_argument(name, action="store_true", help=what)

    @staticmethod
    def value(name: str, metavar: str, what: str, kind: Kind = str, *, default: object = None) -> Declare:
        """An option with a value, or a word that has to be given."""
        return lambda parser: parser.add_argument(name, metavar=metavar, help=what, type=kind, default=default)

    @staticmethod
    def word(name: str, metavar: str, what: str, kind: Kind = str, *, default: object = None) -> Declare:
        """A word that may be left out."""
        return lambda parser: parser.add_argument(
            name, metavar=metavar, help=what, type=kind, default=default, nargs="?"
        )

    @staticmethod
    def many(name: str, metavar: str, what: str, kind: Kind = str) -> Declare:
        """An option with a value that may be given several times: a list."""
        return lambda parser: parser.add_argument(
            name, metavar=metavar, help=what, type=kind, action="append", default=[]
        )


AT = Option.value("--at", "MOMENT", f"as of: {MOMENT}", moment)
DRY_RUN = Option.flag("--dry-run", "print what would change, and write nothing")
REASON = Option.value("--reason", "TEXT", "why; recorded with it", default="")

whole.__name__ = positive.__name__ = "whole number"  # argparse's name for them in errors


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
