"""Opening the database that a command works on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import memory_engine
from memory_engine.cli.options import VARIABLE
from memory_engine.config import EngineConfig
from memory_engine.engine import Engine
from memory_engine.errors import MemoryEngineError
from memory_engine.errors.base import facts
from memory_engine.tokens import TokenCounter


@facts
class NoDatabase(MemoryEngineError):
    """A command that reads was given a path with no database."""

    path: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.why}; name a database with --db or ${VARIABLE}, "
            f"or make one: memory-engine ingest FILE --db {self.path}"
        )


@asynccontextmanager
async def existing(
    path: str,
    tokens: TokenCounter | None = None,
    *,
    config: EngineConfig | None = None,
    read_only: bool = False,
    entry_points: bool = False,
) -> AsyncIterator[Engine]:
    """Open a database that is there. Raises `NoDatabase`, and never makes a file.

    With `read_only` nothing in it is changed. `entry_points` takes the plug-ins that installed packages publish.
    """
    check_is_there(path)
    config = config or EngineConfig(read_only=read_only)
    async with memory_engine.open(path, tokens=tokens, config=config, entry_points=entry_points) as engine:
        yield engine


def check_is_there(path: str) -> None:
    """Raise `NoDatabase` for a path with no database."""
    if "://" in path:
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
async def writable(path: str, *, config: EngineConfig | None = None) -> AsyncIterator[Engine]:
    """Open a database, making it if it is not there."""
    async with memory_engine.open(path, config=config or EngineConfig()) as engine:
        yield engine
