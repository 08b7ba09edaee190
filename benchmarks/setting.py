"""The setting of every bench: a folder, the peers, and databases that several benches share."""

import gc
import itertools
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen

from benchmarks.figures import Figure
from benchmarks.ours import build_log
from benchmarks.peer_process import Peers


@frozen
class Setting:
    """One run's surroundings. A quick run only shows that the benches run."""

    folder: Path
    peers: Peers
    quick: bool = False
    vectors: Sequence[int] = (100_000,)
    logs: dict[tuple[int, bool, int], Path] = field(factory=dict)
    _numbers: Iterator[int] = field(factory=itertools.count)

    def size(self, full: int, quick: int) -> int:
        """A number of things to do, by the kind of run."""
        return quick if self.quick else full

    def new_path(self, name: str) -> Path:
        """A path for a database that is not there yet."""
        number = next(self._numbers)
        return self.folder / f"{name}-{number}.db"

    async def log_of(self, events: int, *, compacted: bool = True, threads: int = 1) -> Path:
        """A copy of a closed database whose threads (`log`, then `log1` …) have `events` messages; built once a run."""
        key = events, compacted, threads
        if key not in self.logs:
            say(f"  building a log of {events:,} messages")
            self.logs[key] = self.new_path(f"log-{events}")
            await build_log(self.logs[key], events, compacted=compacted, threads=threads)
        copy = self.new_path(f"copy-{events}")
        shutil.copy(self.logs[key], copy)
        return copy

    def sweep(self) -> None:
        """Delete the databases that no later bench asks for."""
        kept = {path.name for path in self.logs.values()}
        for path in self.folder.iterdir():
            if path.name.partition(".")[0] + ".db" in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


Bench = Callable[[Setting], Awaitable[list[Figure]]]


def say(text: str) -> None:
    """Progress, for the person who waits."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def one_core(wanted: bool = True) -> Iterator[None]:
    """Keep all threads that begin within on one core, where the system lets us.

    A hop between threads takes two to three times as long when it wakes another core, and which it
    does is the scheduler's whim of the moment: two sides that take turns would be compared by luck.
    """
    if not wanted or sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def settle_memory() -> None:
    """Collect what earlier rounds left, so that a later one does not pay for it."""
    gc.collect()
