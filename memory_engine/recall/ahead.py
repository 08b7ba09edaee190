"""Indexes for search made ahead of the first search, while nothing is written."""

import asyncio
import logging
from functools import partial
from time import perf_counter

from memory_engine.errors import MemoryEngineError
from memory_engine.recall.index import QUIET_S, Indexing
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads

_log = logging.getLogger("memory_engine.recall")

AHEAD_MIN = 2_000
"""Events of logs without an index, together, from which on they are indexed when nothing is written: a search that had
to index them would take a tenth of a second."""


class IndexingAhead:
    """Indexes threads that were written to, while nothing is written, so that no first search has to for seconds.

    It does where the logs in memory that have no index have so many events (`AHEAD_MIN`) that a search would take long,
    and stops at the next commit, to go on when it is quiet again.
    """

    def __init__(self, kernel: Kernel, indexing: Indexing) -> None:
        self._kernel = kernel
        self._indexing = indexing
        self._given_up: dict[str, int] = {}
        self._presses = False
        self._task: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Hear of the next commit, which begins a stretch of them."""
        self._kernel.pace.at_next_commit.append(self._look_later)

    def _look_later(self) -> None:
        left_s = self._kernel.pace.committed_s + QUIET_S - perf_counter()
        asyncio.get_running_loop().call_later(left_s, self._look)

    def _look(self) -> None:
        """Begin, if nothing was written for a while; else look again."""
        if perf_counter() - self._kernel.pace.committed_s < QUIET_S:
            self._look_later()
            return
        self.listen()
        self._begin()

    def forgot(self, runtime: ThreadRuntime) -> None:
        """Go on at once: a thread forgot something."""
        if not runtime.indexed:
            self._presses = True
            self._begin()

    def _begin(self) -> None:
        is_at_work = self._task is not None and not self._task.done()
        if not is_at_work and not self._kernel.tasks.closing and self._waiting():
            self._task = self._kernel.tasks.spawn(self._work(), until_close=True)

    def _waiting(self) -> list[ThreadRuntime]:
        """The threads without an index that were written to; none where that is too little."""
        found = [
            runtime
            for runtime in self._kernel[OpenThreads].all()
            if runtime.is_written and not runtime.indexed and self._given_up.get(runtime.id) != runtime.head.seq
        ]
        return found if sum([runtime.head.seq for runtime in found]) >= AHEAD_MIN else []

    async def _work(self) -> None:
        waiting = self._waiting()
        while waiting:
            runtime = waiting.pop()
            self._presses = False
            try:
                await self._indexing.catch_up(runtime.id, partial(self._go_on, self._kernel.pace.committed_s))
            except _NotQuietError:
                if not self._presses:
                    return
                waiting = self._waiting()
            except MemoryEngineError as error:
                self._given_up[runtime.id] = runtime.head.seq
                _log.warning("thread %r is not indexed before it is searched: %s", runtime.id, error)

    def _go_on(self, began_s: float, _done: int, _all: int) -> None:
        if self._kernel.pace.committed_s != began_s:
            raise _NotQuietError


class _NotQuietError(Exception):
    """Something is written again."""
