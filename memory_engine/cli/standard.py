"""`-` as a file name: standard input and output."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from memory_engine.cli.commands import WrongArgument

STANDARD = "-"


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
