"""The threads that are in memory: each loaded once, those nobody uses let go of."""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Protocol

from memory_engine.caches import Caches
from memory_engine.compaction.service import CompactionService
from memory_engine.errors import EngineClosed, HeadMoved, IntegrityError
from memory_engine.log import load_state
from memory_engine.projections.inline import InlinePlan, InlineProjections
from memory_engine.queue import BlockingReason
from memory_engine.reading import LogReader
from memory_engine.replay.rebuild import rebuild_thread
from memory_engine.runtime import Services, ThreadRuntime


class Host(Services, Protocol):
    """What the directory needs of its engine."""

    compaction: CompactionService
    reader: LogReader
    caches: Caches
    scopes_seen: set[str]
    closing: bool


class OpenThreads:
    """Runtimes by thread id, the most recently used last."""

    def __init__(self, host: Host, plan: InlinePlan) -> None:
        self._host = host
        self._plan = plan
        self._open: OrderedDict[str, ThreadRuntime] = OrderedDict()
        self._loading: dict[str, asyncio.Task[ThreadRuntime]] = {}
        self._broken: dict[str, IntegrityError] = {}

    def get(self, thread_id: str) -> ThreadRuntime | None:
        """The thread, if it is in memory."""
        runtime = self._open.get(thread_id) if thread_id not in self._loading else None
        if runtime is not None:
            self._open.move_to_end(thread_id)
        return runtime

    def all(self) -> list[ThreadRuntime]:
        """Every thread in memory."""
        return list(self._open.values())

    async def open(self, thread_id: str) -> ThreadRuntime:
        """The thread, loaded from the store if it must be. Raises `ThreadNotFound`.

        Who comes while it is being loaded waits for the same load, and none's cancellation ends it.
        """
        runtime = self.get(thread_id)
        if runtime is not None:
            return runtime
        if self._host.closing:
            raise EngineClosed
        loading = self._loading.get(thread_id)
        if loading is None:
            loading = asyncio.get_running_loop().create_task(self._load(thread_id))
            self._loading[thread_id] = loading
            loading.add_done_callback(lambda task: self._loaded(thread_id, task))
        while loading.done() and thread_id in self._loading:  # noqa: ASYNC110 - two rounds; who waited goes first
            await asyncio.sleep(0)
        return await asyncio.shield(loading)

    def refuse(self, thread_id: str, error: IntegrityError) -> None:
        """Take no more events for a thread whose log is broken."""
        self._broken[thread_id] = error
        runtime = self._open.get(thread_id)
        if runtime is not None:
            runtime.failed = error

    def drop(self, thread_id: str) -> None:
        """Let go of a thread: it was deleted."""
        self._open.pop(thread_id, None)
        self._host.caches.drop(thread_id)
        self._host.scopes_seen.discard(thread_id)

    def release_paused(self) -> None:
        """The engine closes: what waits for the end of a pause is refused, since nobody will end it here."""
        for runtime in self._open.values():
            if runtime.queue.blocking_reason is BlockingReason.PAUSED:
                runtime.queue.fail(EngineClosed())

    async def close(self) -> None:
        """Let commits finish, then fail what still waits."""
        if self._loading:
            await asyncio.wait(self._loading.values())
        for runtime in list(self._open.values()):
            runtime.pump()
            while runtime.busy:
                await runtime.idle()
                runtime.pump()
            runtime.queue.fail(EngineClosed())
        self._open.clear()

    async def _load(self, thread_id: str) -> ThreadRuntime:
        store = self._host.store
        loaded = await store.load(thread_id)
        try:
            load_state(loaded, self._host.events)
        except IntegrityError:
            if self._host.config.read_only:
                raise
            # the live rows are a cache of the log: made again, and refused only if that does not mend them
            with suppress(HeadMoved):  # then another process has written, and perhaps mended them
                await rebuild_thread(store, self._host.reader, thread_id)
            loaded = await store.load(thread_id)
        projections = InlineProjections(self._plan, store, self._host.reader, thread_id)
        await projections.load()
        runtime = ThreadRuntime(self._host, loaded, projections)
        self._evict()
        runtime.failed = self._broken.get(thread_id)
        self._open[thread_id] = runtime
        if not self._host.config.read_only:
            await self._host.compaction.recover(runtime)
        return runtime

    def _loaded(self, thread_id: str, task: "asyncio.Task[ThreadRuntime]") -> None:
        """The thread is there for newcomers only after those who waited for it: they wake two rounds from now."""
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.call_soon(self._loading.pop, thread_id, None))
        if not task.cancelled():
            task.exception()

    def _evict(self) -> None:
        """Make room: the threads used longest ago go, but for those at work."""
        excess = len(self._open) - self._host.config.open_threads_max + 1
        for thread_id in list(self._open)[: excess + 64] if excess > 0 else ():
            if excess > 0 and self.let_go(self._open[thread_id]):
                excess -= 1

    def let_go(self, runtime: ThreadRuntime) -> bool:
        """Drop a thread from memory unless it is at work or somebody waits for it; says whether it did."""
        if runtime.busy or not runtime.queue.is_clear or self._host.compaction.is_running(runtime.id):
            return False
        del self._open[runtime.id]
        self._host.caches.drop(runtime.id)
        self._host.scopes_seen.discard(runtime.id)
        return True
