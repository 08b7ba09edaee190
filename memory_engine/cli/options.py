"""The parts of the command line that need no command: exit codes, shared options, the database's place and its key.

A key comes from a file, from the environment, or is typed in, never from the command line itself: what a command is
called with can be read by every user of the machine, and is kept in the shell's history.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from typing import NamedTuple

FOUND_PROBLEMS = 1
"""Exit code of a command that did its work and found something wrong in its input."""
FAILED = 2
INTERRUPTED = 130
DEFAULT = "memory.db"
VARIABLE = "MEMORY_ENGINE_DB"
KEY_VARIABLE = "MEMORY_ENGINE_KEY"


class PluginChoice(NamedTuple):
    """Whether to load the plug-ins that installed packages publish, and which others."""

    published: bool = True
    named: tuple[str, ...] = ()


class _Further(argparse.Action):
    """Adds to the values given before the command, since a command's parser starts with none."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _option: str | None = None,
    ) -> None:
        dest = "plugins" if parser.prog.endswith("memory-engine") else "plugins_after"
        setattr(namespace, dest, (*getattr(namespace, dest, ()), values))


def plugin_choice(asked: argparse.Namespace) -> PluginChoice:
    """The values of `--plugins` and `--no-plugins`, before or after the command.

    Named modules are also searched in the working directory, where applications are started.
    """
    named = (*getattr(asked, "plugins", ()), *getattr(asked, "plugins_after", ()))
    if named and (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - pathlib takes as long to load as all of this
        sys.path.insert(0, here)
    return PluginChoice(published="no_plugins" not in asked, named=named)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """The options that may be given before a command or after it."""
    everywhere = parser.add_argument_group("options of every command")
    everywhere.add_argument(
        "--db",
        metavar="PLACE",
        default=argparse.SUPPRESS,
        help=f"the database: a file's path, or a URL, postgresql://… (default: ${VARIABLE}, else {DEFAULT})",
    )
    everywhere.add_argument(
        "--key-file",
        metavar="PATH",
        default=argparse.SUPPRESS,
        help="the key of an encrypted database: a file's text (default: $MEMORY_ENGINE_KEY, else you are asked)",
    )
    everywhere.add_argument(
        "--key-env", metavar="NAME", default=argparse.SUPPRESS, help="the key is in this environment variable"
    )
    everywhere.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    everywhere.add_argument(
        "--plugins",
        action=_Further,
        metavar="MODULE:NAME",
        default=argparse.SUPPRESS,
        help="load this plug-in of your application too (may be repeated)",
    )
    everywhere.add_argument(
        "--no-plugins",
        action="store_true",
        default=argparse.SUPPRESS,
        help="ignore the plug-ins that installed packages publish (entry points)",
    )


def database_path(asked: str | None) -> str:
    """The place that the option names, else the environment, else `memory.db`."""
    return asked or os.environ.get(VARIABLE) or DEFAULT


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest known ones, if any is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, dict.fromkeys(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class KeyChoice:
    """Where the key of the database is to be read from; with `may_ask` a person may be asked for it, once."""

    def __init__(self, file: str | None = None, variable: str | None = None, *, may_ask: bool = True) -> None:
        self.file = file
        self.variable = variable
        self.may_ask = may_ask
        self.typed: str | None = None


CHOSEN: ContextVar[KeyChoice | None] = ContextVar("CHOSEN", default=None)
"""The key's options on the command line: every place at which a command opens a database reads them."""


def key_choice(asked: argparse.Namespace) -> KeyChoice:
    """The values of `--key-file` and `--key-env`."""
    return KeyChoice(getattr(asked, "key_file", None), getattr(asked, "key_env", None))


def key_for(place: str) -> str | None:
    """The key of the database at a place: as chosen, else from the environment, else asked for if it needs one.

    Raises `InvalidKey` for a variable that is not set and for a file that is not a text, and `OSError`.
    """
    choice = CHOSEN.get() or KeyChoice(may_ask=False)
    if choice.file is not None:
        return of_file(choice.file)
    if choice.variable is not None:
        return of_variable(choice.variable)
    if "://" in place or place == ":memory:":
        return None
    return os.environ.get(KEY_VARIABLE) or choice.typed or (_asked_for(place, choice) if choice.may_ask else None)


def add_new_key(parser: argparse.ArgumentParser) -> None:
    """The options for the key of what a command makes."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--new-key-file", metavar="PATH", help="its key is in this file (as --key-file)")
    which.add_argument("--new-key-env", metavar="NAME", help="its key is in this environment variable")
    which.add_argument("--plain", action="store_true", help="it has no key, and anybody can read it")


def new_key(asked: argparse.Namespace) -> str | None:
    """The key that `--new-key-file` or `--new-key-env` names."""
    if asked.new_key_file is not None:
        return of_file(asked.new_key_file)
    return None if asked.new_key_env is None else of_variable(asked.new_key_env)


def of_file(path: str) -> str:
    """The key in a file: its text, without the end of the line."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as in `plugin_choice`
            return file.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        from memory_engine.errors import InvalidKey

        raise InvalidKey(f"{path} is not a text in UTF-8; write 32 bytes as x'…', in hexadecimal digits") from None


def of_variable(name: str) -> str:
    """The key in an environment variable."""
    try:
        return os.environ[name]
    except KeyError:
        from memory_engine.errors import InvalidKey

        raise InvalidKey(f"the environment has no variable {name}") from None


def can_ask() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def typed(question: str) -> str:
    """A key that a person types, unseen."""
    from getpass import getpass

    from memory_engine.cli.terminal import ASKING

    ASKING.set()
    try:
        return getpass(f"{question}: ")
    finally:
        ASKING.clear()


def _asked_for(place: str, choice: KeyChoice) -> str | None:
    """The key of an encrypted file, typed in; `None` without a person to ask, or if it needs none."""
    if not can_ask():
        return None
    from memory_engine.errors.base import shown_place
    from memory_engine.storage.driver import needs_key

    if not needs_key(place):
        return None
    choice.typed = typed(f"key of {shown_place(place)}")
    return choice.typed
