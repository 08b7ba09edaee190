"""The threads in memory, each loaded once and dropped when unused, and the listeners of their commits."""

import asyncio
import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction
from itertools import islice
from typing import TYPE_CHECKING

from memory_engine.core.aside import aside, freed
from memory_engine.core.events.compaction import SourceQuarantined, ThreadRewound
from memory_engine.core.events.delivery import FactsRewound
from memory_engine.core.events.memory import MemoryForget, ThreadCleared
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import RecordedEvent
from memory_engine.core.state import State
from memory_engine.core.threads import Head, LoadedThread, ThreadRecord, is_scope_id
from memory_engine.errors import EngineClosed, HeadMoved, IntegrityError, InvalidArgument, StorageError, ThreadNotFound
from memory_engine.projections.inline import InlinePlan, InlineProjections
from memory_engine.runtime.commit import Reduced
from memory_engine.runtime.config import EngineConfig
from memory_engine.runtime.correlation import UNLINKED, linked
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.queue import BlockingReason, Request
from memory_engine.runtime.thread_runtime import Committed, ThreadRuntime
from memory_engine.store.broken import broken_as_error, mark_broken

if TYPE_CHECKING:
    from memory_engine.projections import rebuild
else:
    rebuild = lazy_module("memory_engine.projections.rebuild")

_log = logging.getLogger("memory_engine")

THREAD_BYTES, CHUNK_BYTES, TOKEN_BYTES = 8 * 1024, 544, 4
"""Size of a thread in memory, and of each of its chunks without its text: measured, and so is the size of a text."""
_SHOWING = frozenset(cls.event_type for cls in (ThreadRewound, FactsRewound, SourceQuarantined))
LOOKED_AT = 64
"""Threads that are looked at beyond those that are too many, since some are at work."""

Observer = Callable[[RecordedEvent], None]
"""Called after an event became durable, at most once for each, in the order of its thread. Must not block."""


class Observers:
    """The observers of one engine. They are in `on_commit` while there are any."""

    def __init__(self, on_commit: list[Committed]) -> None:
        self._on_commit = on_commit
        self._observers: list[Observer] = []
        self._waiting: set[asyncio.Event] = set()

    def add(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` from now on; returns a function that ends it. Raises `InvalidArgument` for an async one."""
        if iscoroutinefunction(observer) or iscoroutinefunction(type(observer).__call__):
            raise InvalidArgument("observer", observer, "write it without async; it may start a task that awaits")
        if not self._observers:
            self._on_commit.append(self.after_commit)
        self._observers.append(observer)
        return lambda: self._remove(observer)

    def _remove(self, observer: Observer) -> None:
        self._observers.remove(observer)
        if not self._observers:
            self._on_commit.remove(self.after_commit)

    @contextmanager
    def news(self, thread_id: str | None) -> Iterator[asyncio.Event]:
        """Set once this engine has committed an event of the thread (see `Lookout`), and when the engine closes."""
        news = asyncio.Event()

        def told(recorded: RecordedEvent) -> None:
            if thread_id in ("", recorded.thread_id):
                news.set()

        end = self.add(told)
        self._waiting.add(news)
        try:
            yield news
        finally:
            self._waiting.discard(news)
            end()

    def close(self) -> None:
        """Wake those who wait for news: the engine closes."""
        for news in self._waiting:
            news.set()

    def after_commit(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        """Tell of a commit in the loop's next round, so that its senders go on first."""
        asyncio.get_running_loop().call_soon(self._tell, runtime, reduced)

    def _tell(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        for step in reduced:
            recorded = step.recorded(runtime.id)
            for observer in list(self._observers):
                self._notify(observer, recorded)

    def _notify(self, observer: Observer, recorded: RecordedEvent) -> None:
        try:
            with linked(UNLINKED):  # without the links of a sender: the commit may have several
                observer(recorded)
        except Exception:  # the boundary to user code: the event is durable, whatever an observer raises
            _log.exception("an observer failed on seq %d of thread %r", recorded.seq, recorded.thread_id)


class OpenThreads:
    """Runtimes by thread id, the most recently used last.

    `wiring` fills the lists of hooks: `on_open` runs once a thread was loaded to be written to; after each of its
    commits come those `on_event` of its types, and `on_facts` for events that have facts for other threads, then,
    where its compactable chunks have `due_tokens`, those `on_due`, and then those `on_commit`, each in order.
    `keeping` says of a thread's id whether it is at work; `before_context` is awaited before a context is made of its
    state, `before_delete` before its end, `before_scopes` before a user, tenant or agent is read.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._plan = InlinePlan(kernel.projections)
        self._store = kernel.store
        self._generation = self._store.generation
        self.on_open: list[Callable[[ThreadRuntime], Awaitable[None]]] = []
        self.on_event: defaultdict[str, list[Callable[[ThreadRuntime, Reduced], None]]] = defaultdict(list)
        for hiding in (MemoryForget, ThreadCleared, ThreadRewound, FactsRewound, SourceQuarantined):
            self.on_event[hiding.event_type].append(self._show_no_more)
        self.on_facts: list[Callable[[ThreadRuntime], None]] = []
        self.on_due: list[Committed] = []
        self.on_commit: list[Committed] = []
        self.keeping: list[Callable[[str], bool]] = []
        self.before_context: list[Callable[[ThreadRuntime], Awaitable[None]]] = []
        self.before_delete: list[Callable[[str], Awaitable[None]]] = []
        self.before_scopes: list[Callable[[], Awaitable[None]]] = []
        self._open: OrderedDict[str, ThreadRuntime] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._loading: dict[str, asyncio.Task[ThreadRuntime]] = {}

    def get(self, thread_id: str) -> ThreadRuntime | None:
        """The thread, if it is in memory. Raises `WrongEventLoop` to callers from another thread's event loop."""
        if threading.get_ident() != self._kernel.home.thread:
            self._kernel.home.look()
        return self.held(thread_id)

    def held(self, thread_id: str) -> ThreadRuntime | None:
        """The same for callers that have entered the engine's event loop."""
        if self._generation != (now := self._store.generation):
            self._generation = now
            self._outdate()
        runtime = self._open.get(thread_id) if thread_id not in self._loading else None
        if runtime is not None:
            self._open.move_to_end(thread_id)
        return runtime

    def _outdate(self) -> None:
        """Hold on to nothing that was read before some process deleted or erased something."""
        self._kernel.reader.clear()
        self._kernel.caches.clear()
        for runtime in list(self._open.values()):
            if not self.let_go(runtime):
                runtime.outdate()

    def all(self) -> list[ThreadRuntime]:
        """Every thread in memory."""
        return list(self._open.values())

    async def open(self, thread_id: str) -> ThreadRuntime:
        """The thread, loaded from the store if it must be. Raises `ThreadNotFound`.

        Calls that come while it is being loaded wait for the same load. Cancelling one of them does not stop it.
        """
        runtime = self.get(thread_id)
        if runtime is not None:
            return runtime
        if self._kernel.tasks.closing:
            raise EngineClosed
        loading = self._loading.get(thread_id)
        joined = loading is not None
        was_over = loading is not None and loading.done()
        if loading is None:
            loading = asyncio.get_running_loop().create_task(self._load(thread_id))
            self._loading[thread_id] = loading
            loading.add_done_callback(lambda task: self._loaded(thread_id, task))
        while loading.done() and thread_id in self._loading:  # noqa: ASYNC110 - two rounds: earlier waiters go first
            await asyncio.sleep(0)
        if was_over and (loading.cancelled() or loading.exception() is not None):
            return await self.open(thread_id)  # it failed before this call: the thread may have been made since
        try:
            return await asyncio.shield(loading)
        except ThreadNotFound:
            if not joined:
                raise
        return await self.open(thread_id)  # that load may have begun before the thread was made

    async def make(self, record: ThreadRecord, request: Request) -> None:
        """Make a thread with its first events, in one commit. Raises `ThreadExists`, and the errors of dispatching."""
        if self._kernel.tasks.closing:
            raise EngineClosed
        await self._new(record, makes=record).submit(request)

    def adopt(self, record: ThreadRecord) -> None:
        """Hold in memory a thread that was made just now, without events: there is nothing to load."""
        is_plain = not is_scope_id(record.id)  # the store says where the epochs of a scope's thread begin
        if is_plain and record.id not in self._open and record.id not in self._loading:
            self._hold(self._new(record))

    def _new(self, record: ThreadRecord, *, makes: ThreadRecord | None = None) -> ThreadRuntime:
        projections = InlineProjections(self._plan, self._kernel.store, self._kernel.reader, record.id)
        projections.begin()
        loaded = LoadedThread(record, Head(), (), {})
        return ThreadRuntime(self._kernel, loaded, State(), projections, self._committed, makes=makes)

    async def taken(self, thread_id: str) -> ThreadRuntime:
        """The thread in memory, loaded from the store if it is not there. Raises `ThreadNotFound`."""
        self._kernel.home.entered()
        return self.get(thread_id) or await self.open(thread_id)

    async def note(self, thread_id: str, error: IntegrityError | None) -> None:
        """Refuse events and reads of the present of a thread whose log is broken, here and in every later process.

        With no error it is whole again.
        """
        runtime = self._open.get(thread_id)
        if runtime is not None:
            runtime.failed = error
        if not self._kernel.config.read_only:
            with suppress(StorageError, ThreadNotFound):  # then the next process has to find out for itself
                await mark_broken(self._kernel.store, error, thread_id)

    def drop(self, thread_id: str) -> None:
        """Drop a deleted thread."""
        runtime = self._open.pop(thread_id, None)
        self._bytes -= self._sizes.pop(thread_id, 0)
        self._kernel.caches.drop(thread_id)
        if runtime is not None:
            freed([runtime.state])

    def moved(self) -> None:
        """Drop the threads that were at work on an event loop that has ended: the store knows the outcome."""
        self._loading.clear()
        for runtime in list(self._open.values()):
            if runtime.busy or not runtime.queue.is_clear:
                self.drop(runtime.id)

    def release_paused(self) -> None:
        """Refuse requests that wait for the end of a pause: the engine closes, so no call here can end it."""
        for runtime in self._open.values():
            if runtime.queue.blocking_reason is BlockingReason.PAUSED:
                runtime.queue.fail(EngineClosed())

    async def close(self) -> None:
        """Let commits finish, then fail the requests that still wait."""
        if self._loading:
            await asyncio.wait(self._loading.values())
        for runtime in list(self._open.values()):
            runtime.pump()
            while runtime.busy:
                await runtime.idle()
                runtime.pump()
            runtime.queue.fail(EngineClosed())
        self._open.clear()
        self._sizes.clear()
        self._bytes = 0

    async def _load(self, thread_id: str) -> ThreadRuntime:
        store = self._kernel.store
        reader = self._kernel.reader
        loaded = await reader.load(thread_id)
        try:
            state = await reader.state_of(loaded)
        except IntegrityError:
            if self._kernel.config.read_only:
                raise
            # the live rows are a cache of the log: make them again, and refuse only if that does not mend them
            with suppress(HeadMoved):  # then another process has written, and perhaps mended them
                await rebuild.rebuild_thread(store, reader, thread_id)
            loaded = await reader.load(thread_id)
            state = await reader.state_of(loaded)
        projections = InlineProjections(self._plan, store, reader, thread_id)
        await projections.load()
        runtime = ThreadRuntime(self._kernel, loaded, state, projections, self._committed)
        await aside(loaded.let_go, items=len(loaded.live))
        runtime.failed = broken_as_error(thread_id, loaded.broken)
        self._hold(runtime)
        if not self._kernel.config.read_only:
            for opened in self.on_open:
                await opened(runtime)
        return runtime

    def _loaded(self, thread_id: str, task: "asyncio.Task[ThreadRuntime]") -> None:
        """Show the thread to newcomers only after those who waited for it, who wake two rounds from now."""
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.call_soon(self._loading.pop, thread_id, None))
        if not task.cancelled():
            task.exception()

    def _committed(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        for step in reduced:
            for heard in self.on_event.get(step.stored.type, ()):
                heard(runtime, step)
            if step.event.event_delivers:
                for delivered in self.on_facts:
                    delivered(runtime)
        if runtime.id in self._open:
            self.weigh(runtime)
        elif runtime.id not in self._loading:  # its first commit has made the thread
            self._hold(runtime)
        if runtime.state.tally.compactable_tokens >= runtime.due_tokens:
            for due in self.on_due:
                due(runtime, reduced)
        for committed in self.on_commit:
            committed(runtime, reduced)

    def _show_no_more(self, runtime: ThreadRuntime, step: Reduced) -> None:
        """Show nothing from memory that was made of what is hidden now."""
        self._kernel.caches.drop(runtime.id)
        if step.stored.type in _SHOWING:
            runtime.projections.let_go()
        if step.stored.type != MemoryForget.event_type:
            runtime.compaction_backoff = 0
            runtime.incompressible.clear()

    def _hold(self, runtime: ThreadRuntime) -> None:
        """Hold a thread in memory, as the one that was used last."""
        self._open[runtime.id] = runtime
        self.weigh(runtime)

    def weigh(self, runtime: ThreadRuntime) -> None:
        """Count what a thread in memory takes now, and make room where that is too much."""
        if self._open.get(runtime.id) is not runtime:
            return
        tally = runtime.state.tally
        size = THREAD_BYTES + CHUNK_BYTES * tally.chunks + TOKEN_BYTES * tally.tokens
        self._bytes += size - self._sizes.get(runtime.id, 0)
        self._sizes[runtime.id] = size
        config = self._kernel.config
        if len(self._open) > config.open_threads_max or self._bytes > config.open_bytes_max:
            self._evict(runtime, config)

    def _evict(self, kept: ThreadRuntime, config: EngineConfig) -> None:
        """Evict the least recently used threads that are not at work, and never the one that needs the room."""
        excess = max(0, len(self._open) - config.open_threads_max)
        for runtime in list(islice(self._open.values(), excess + LOOKED_AT)):
            if len(self._open) <= config.open_threads_max and self._bytes <= config.open_bytes_max:
                return
            if runtime is not kept:
                self.let_go(runtime)

    def let_go(self, runtime: ThreadRuntime) -> bool:
        """Drop a thread from memory unless it is at work or awaited. Returns whether it did."""
        if (held := self._open.get(runtime.id)) is not runtime:  # it was evicted, and perhaps loaded again
            if held is not None and not self.let_go(held):
                held.outdate()
            return True
        is_awaited = runtime.id in self._loading or not runtime.queue.is_clear
        if runtime.busy or is_awaited or any(is_kept(runtime.id) for is_kept in self.keeping):
            return False
        del self._open[runtime.id]
        self._bytes -= self._sizes.pop(runtime.id, 0)
        self._kernel.caches.unload(runtime.id)
        freed([runtime.state])
        return True
