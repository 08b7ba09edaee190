"""The key of an encrypted database: from a file, from the environment, or typed in. Never from the command line itself.

What a command is called with can be read by every user of the machine, and is kept in the shell's history.
"""

import argparse
import os
import sys
from contextvars import ContextVar
from pathlib import Path

from memory_engine.errors import InvalidKey
from memory_engine.errors.base import is_url, shown_place

VARIABLE = "MEMORY_ENGINE_KEY"


class KeyChoice:
    """Where the key of the database is to be read from; with `may_ask` a person may be asked for it, once."""

    def __init__(self, file: str | None = None, variable: str | None = None, *, may_ask: bool = True) -> None:
        self.file = file
        self.variable = variable
        self.may_ask = may_ask
        self.typed: str | None = None


CHOSEN: ContextVar[KeyChoice | None] = ContextVar("CHOSEN", default=None)
"""What the command line says of the key: every place at which a command opens a database reads it."""


def key_choice(asked: argparse.Namespace) -> KeyChoice:
    """What `--key-file` and `--key-env` say."""
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
    if is_url(place) or place == ":memory:":
        return None
    return os.environ.get(VARIABLE) or choice.typed or (_asked_for(place, choice) if choice.may_ask else None)


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
        return Path(path).read_bytes().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InvalidKey(f"{path} is not a text in UTF-8; write 32 bytes as x'…', in hexadecimal digits") from None


def of_variable(name: str) -> str:
    """The key in an environment variable."""
    try:
        return os.environ[name]
    except KeyError:
        raise InvalidKey(f"the environment has no variable {name}") from None


def can_ask() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def typed(question: str) -> str:
    """A key that a person types, unseen."""
    from getpass import getpass

    return getpass(f"{question}: ")


def _asked_for(place: str, choice: KeyChoice) -> str | None:
    """The key of an encrypted file, typed in; `None` where nobody can be asked, or it needs none."""
    if not can_ask():
        return None
    from memory_engine.storage.places import needs_key

    if not needs_key(place):
        return None
    choice.typed = typed(f"key of {shown_place(place)}")
    return choice.typed
