"""Put a file in its place once it is whole: until then it has another name, and no reader takes it for the real one."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Literal, Protocol, TypeVar

from memory_engine.core.arguments import PathLike
from memory_engine.core.lazy import regex
from memory_engine.errors import FileFailed, FileRefused

T = TypeVar("T")

_LEFT = regex(r"\.\d+\.(part|plain)(-wal|-shm|-journal)?$")


class FilePlan(Protocol):
    """Called before and after each step with a new file. An error that it raises is raised there."""

    def before(self, point: Literal["sync", "rename"]) -> None:
        """It is about to be done."""

    def after(self, point: Literal["sync", "rename"]) -> None:
        """It is done; an error now loses its outcome."""


FILE_PLAN: ContextVar[FilePlan | None] = ContextVar("FILE_PLAN", default=None)
"""The seam where a test makes it fail (see `memory_engine.testing.Faults.files`)."""


@contextmanager
def file_errors(path: PathLike) -> Iterator[None]:
    """Raise `FileFailed` for an `OSError` in the block: a full disk, no free descriptor, no permission.

    `FileExistsError`, `FileNotFoundError` and `FileRefused` explain themselves and pass unchanged.
    """
    try:
        yield
    except (FileExistsError, FileNotFoundError, FileRefused):
        raise
    except OSError as error:
        raise FileFailed(str(path), error.strerror or str(error)) from error


def beside(path: Path) -> Path:
    """Where this process makes a file before it is there."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def remove_left(path: Path) -> None:
    """Remove the files that killed processes have begun for this path, and SQLite's files of them."""
    for left in path.parent.iterdir():
        if left.name.startswith(f".{path.name}.") and _LEFT.search(left.name):
            left.unlink(missing_ok=True)


def check_free(path: Path, *, force: bool = False) -> None:
    """Raise `FileExistsError` where something is there already. With `force` a file may be replaced, nothing else."""
    if path.exists() and not (force and path.is_file()):
        raise _there_already(path)


def put_in_place(made: Path, path: Path, *, force: bool = False) -> None:
    """Let a whole file be there. Raises `FileExistsError` where another is by now."""
    _at_fault_point("rename", lambda: _move_into_place(made, path, force=force))


def sync(file: IO[bytes]) -> None:
    """Bring what was written to a file to the disk."""
    file.flush()
    _at_fault_point("sync", lambda: os.fsync(file.fileno()))


def _at_fault_point(point: Literal["sync", "rename"], act: Callable[[], T]) -> T:
    plan = FILE_PLAN.get()
    if plan is None:
        return act()
    plan.before(point)
    done = act()
    plan.after(point)
    return done


def _move_into_place(made: Path, path: Path, *, force: bool) -> None:
    if force:
        made.replace(path)
        return
    try:
        path.hardlink_to(made)  # a rename would replace a file that someone has put there by now
    except FileExistsError:
        raise _there_already(path) from None
    except OSError:  # a file system without links
        if path.exists():
            raise _there_already(path) from None
        made.replace(path)


def _there_already(path: Path) -> FileExistsError:
    what = "there is a file already: give another name, or move that file away"
    return FileExistsError(errno.EEXIST, what, str(path))
