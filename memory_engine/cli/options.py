"""The parts of the command line that need no command: exit codes, shared options, the database's place."""

import argparse
import os

FOUND_PROBLEMS = 1
"""Exit code of a command that did its work and found something wrong in what it was given."""
FAILED = 2
INTERRUPTED = 130
DEFAULT = "memory.db"
VARIABLE = "MEMORY_ENGINE_DB"


def add_shared(parser: argparse.ArgumentParser) -> None:
    """The options that stand anywhere: before a command, or after it."""
    parser.add_argument(
        "--db",
        metavar="PLACE",
        default=argparse.SUPPRESS,
        help=f"the database: a file's path, or a URL, postgresql://… (default: ${VARIABLE}, else {DEFAULT})",
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.add_argument(
        "--plugins",
        action="store_true",
        default=argparse.SUPPRESS,
        help="with the plug-ins that installed packages publish (entry points): their events, reducers and views",
    )


def database_path(asked: str | None) -> str:
    """The place of the option, else that of the environment, else `memory.db`."""
    return asked or os.environ.get(VARIABLE) or DEFAULT
