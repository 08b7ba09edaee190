"""Putting a file in its place once it is whole: until then it stands beside, and nobody takes it for the real one."""

import errno
import os
from pathlib import Path


def beside(path: Path) -> Path:
    """Where this process makes a file before it is there."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def check_free(path: Path, *, force: bool = False) -> None:
    """Raise `FileExistsError` where something is there already. With `force` a file may be replaced, nothing else."""
    if path.exists() and not (force and path.is_file()):
        raise _there_already(path)


def put_in_place(made: Path, path: Path, *, force: bool = False) -> None:
    """Let a whole file be there. Raises `FileExistsError` where another is by now."""
    if force:
        made.replace(path)
        return
    try:
        path.hardlink_to(made)  # a rename would replace what somebody has put there by now
    except FileExistsError:
        raise _there_already(path) from None
    except OSError:  # a file system without links
        if path.exists():
            raise _there_already(path) from None
        made.replace(path)


def _there_already(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "there is a file already: give another name, or let it be replaced", str(path))
