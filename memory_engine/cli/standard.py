"""The files that a command reads and writes: `-` is standard input and output; and the limits of reading."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import evolve

from memory_engine.cli.commands import Declare, WrongArgument
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.errors import InvalidInput

STANDARD = "-"


def reading_limits(text: str) -> ReadingLimits:
    """`NAME=N,…`: limits of reading files that replace the defaults."""
    pairs = (one.partition("=") for one in text.split(","))
    try:
        return evolve(DEFAULT_LIMITS, **{name.strip(): int(count) for name, _, count in pairs})
    except (InvalidInput, TypeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def limits(such_as: str) -> Declare:
    """The option `--limits`, with an example."""
    return lambda parser: parser.add_argument(
        "--limits",
        type=reading_limits,
        default=DEFAULT_LIMITS,
        metavar="NAME=N,…",
        help=f"other limits of reading, such as {such_as}",
    )


def check_one_is_there(names: Sequence[str]) -> None:
    """Raise `WrongArgument` if none of the files exists, before a database is made for nothing."""
    if not any(name == STANDARD or Path(name).exists() for name in names):
        raise WrongArgument(f"{', '.join(names)}: there is no such file")


@contextmanager
def read_whole(name: str) -> Iterator[Path]:
    """The named file; for `-` a temporary one with standard input, since a log is read twice."""
    if name != STANDARD:
        yield Path(name)
        return
    with TemporaryDirectory(prefix="memory-engine-") as folder:
        path = Path(folder, "standard-input")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


@contextmanager
def written_whole(name: str) -> Iterator[Path]:
    """The named file; for `-` a temporary one whose bytes go to standard output on success."""
    if name != STANDARD:
        yield Path(name)
        return
    with TemporaryDirectory(prefix="memory-engine-") as folder:
        path = Path(folder, "standard-output")
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.flush()
