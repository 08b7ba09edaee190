"""How much SQLite reads: the steps of its virtual machine, a few for each row that a statement looks at."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

STEPS = 10


class ReadingSteps:
    """The steps of all connections that were opened while it watched, counted by tens."""

    def __init__(self) -> None:
        self.taken = 0

    def watch(self, connection: sqlite3.Connection) -> None:
        """Count what this connection does from here on."""
        connection.set_progress_handler(self._count, STEPS)

    def _count(self) -> None:
        self.taken += STEPS


@contextmanager
def counting_steps() -> Iterator[ReadingSteps]:
    """Count on every connection that is opened within."""
    steps = ReadingSteps()
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect_watched(*words: str, **settings: bool) -> sqlite3.Connection:
        connection = connect(*words, **settings)
        steps.watch(connection)
        return connection

    with mock.patch.object(sqlite3, "connect", connect_watched):
        yield steps
