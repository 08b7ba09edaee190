"""The parts of the command line that need no command: exit codes, shared options, the database's place."""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import NamedTuple

FOUND_PROBLEMS = 1
"""Exit code of a command that did its work and found something wrong in its input."""
FAILED = 2
INTERRUPTED = 130
DEFAULT = "memory.db"
VARIABLE = "MEMORY_ENGINE_DB"


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
    """What `--plugins` and `--no-plugins` say, before or after the command.

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
