"""The engine: opens threads, and answers what concerns all of them. It orders the work and decides nothing."""

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from memory_engine.compaction.base import Compactor
from memory_engine.compaction.service import CompactionService
from memory_engine.core.arguments import (
    checked_call,
    checked_function,
    checked_limit,
    checked_list,
    checked_name,
    checked_text,
    checked_type,
)
from memory_engine.core.aside import aside, imported
from memory_engine.core.cancellation import finished
from memory_engine.core.clock import to_us
from memory_engine.core.events.memory import InitialChunk
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.ids import check_identifier
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.records import EventLike, Receipt, RecordedEvent
from memory_engine.core.threads import CompactionPolicy, ThreadInfo, as_metadata, check_metadata
from memory_engine.errors import InvalidArgument, InvalidSearch, MemoryEngineError
from memory_engine.moved import OldEngineNames
from memory_engine.recall.service import Recall, asked
from memory_engine.runtime.config import EngineConfig
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.scoped import (
    ScopeHandle,
    ThreadScopes,
    check_one_tenant,
    create_thread,
    new_record,
    open_thread,
    seeded,
)
from memory_engine.runtime.threads import Observer, Observers, OpenThreads
from memory_engine.scopes import Agent, Industry, Tenant, User
from memory_engine.store.protocol import StoreStats, ThreadFilter
from memory_engine.thread import Thread

if TYPE_CHECKING:
    from memory_engine.administration import erasing, of_store, store_copy
    from memory_engine.compaction.hooks import UpcomingCompaction
    from memory_engine.projections import follower
    from memory_engine.recall.hits import Found
    from memory_engine.replay import anchors, verify
    from memory_engine.replay.divergence import VerifyReport
    from memory_engine.replay.export import archive
    from memory_engine.replay.verify import VerifyProgress
else:
    follower = lazy_module("memory_engine.projections.follower")
    archive = lazy_module("memory_engine.replay.export.archive")
    erasing, of_store, store_copy = lazy_modules("memory_engine.administration", "erasing of_store store_copy")
    anchors, verify = lazy_modules("memory_engine.replay", "anchors verify")

_log = logging.getLogger("memory_engine")

BeforeCompaction: TypeAlias = "Callable[[Thread, UpcomingCompaction], Awaitable[str | None] | str | None]"


class Engine(OldEngineNames):
    """Dispatches events to threads and derives what people and models see. Open one with `memory_engine.open`."""

    def __init__(self, kernel: Kernel, models: AsyncExitStack | None = None, place: str = "") -> None:
        """`models` are closed with the engine, after the store. `place` is the name the engine gives itself."""
        self._kernel = kernel
        self._place = place
        self._models = models or AsyncExitStack()
        self._is_started = False
        self._close_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place!r})"

    async def __aenter__(self) -> "Engine":
        if self._is_started:
            return self
        self._is_started = True
        if self.config.read_only:
            return self
        if any(p.mode == "async" for p in self._kernel.projections):
            self._kernel.tasks.spawn(self._kernel[follower.ProjectionWorker].run(), until_close=True)
        self._kernel.tasks.spawn(self._kernel[Relay].recover())
        self._kernel.tasks.spawn(_finish_quietly(self._kernel))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._is_started and self._close_task is None:
            kept = "what it holds goes with it:" if self._place == ":memory:" else "what was acknowledged is kept, but"
            how = f"{kept} call `await engine.close()`, or open it by `async with`"
            warnings.warn(f"{self!r} was never closed: {how}", ResourceWarning, source=self, stacklevel=2)

    async def close(self) -> None:
        """End running compactions (their originals stay), finish commits, fail waiting dispatches, and close the store.

        An engine that you never close leaves its file as after a crash, with every acknowledged event in it. Raises
        `WrongEventLoop` while the event loop that it lives on runs; once that has ended, close it on any other.
        """
        if self._kernel.home.leave_behind():
            self._close_task = None
        if self._close_task is None:
            self._kernel.tasks.closing = True
            self._kernel[Observers].close()
            self._close_task = asyncio.get_running_loop().create_task(self._close())
        await finished(self._close_task)

    async def _close(self) -> None:
        tasks, threads = self._kernel.tasks, self._kernel[OpenThreads]
        async with self._models:
            await tasks.end(threads.release_paused)
            await threads.close()
            tasks.closed = True
            await tasks.wait()
            await self._kernel.store.close()

    # its parts

    @property
    def config(self) -> EngineConfig:
        """The configuration that the engine was opened with."""
        return self._kernel.config

    @property
    def events(self) -> EventRegistry:
        """The event types that the engine knows."""
        return self._kernel.events

    @property
    def reducers(self) -> tuple[str, ...]:
        """The names of the reducers that the engine runs; a plug-in may replace each (`Plugin.replaces_reducer`)."""
        return self._kernel.reducers.names()

    @property
    def admin(self) -> "of_store.StoreAdmin":
        """Acts on the whole store: `backup`, `rekey`, `retain`, `holds`, `acts`, `anchors` and so on."""
        return of_store.StoreAdmin(self._kernel, self._place)

    @property
    def transfer(self) -> "of_store.Transfer":
        """Logs and memories that come from files and go to files: `import_log`, `import_memories` and so on."""
        return of_store.Transfer(self._kernel)

    @property
    def _recall(self) -> Recall:
        return self._kernel[Recall]

    # threads

    async def create_thread(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        thread_id: str = "",
        *,
        kind: str = "conversation",
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        parent_id: str = "",
        metadata: Mapping[str, str] | None = None,
        initial_chunks: Sequence[InitialChunk] = (),
        policy: CompactionPolicy | None = None,
    ) -> Thread:
        """Create a thread. Without a `thread_id`, its id is a UUIDv7.

        `initial_chunks` become its first event. `policy` replaces the engine's compaction policy for this thread.
        Raises `ThreadExists`, `InvalidIdentifier` (also for the id of a user's, tenant's, agent's or industry's own
        thread, such as `user:u1`), and for initial chunks what `dispatch` raises; then no thread is created. You can
        reuse the id of a deleted thread. Raises `ScopeRequired` under `EngineConfig.scopes_required`.
        """
        scopes = ThreadScopes(kind, user_id, tenant_id, agent_id, parent_id)
        thread_id = self._kernel.new_id() if thread_id in ("", None) else thread_id
        record = new_record(self._kernel, thread_id, scopes, metadata, policy)
        await create_thread(self._kernel, record, seeded(initial_chunks))
        return Thread(ThreadHandle(self._kernel, record.id))

    async def open_thread(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        thread_id: str,
        *,
        kind: str = "conversation",
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        parent_id: str = "",
        metadata: Mapping[str, str] | None = None,
        initial_chunks: Sequence[InitialChunk] = (),
        policy: CompactionPolicy | None = None,
    ) -> Thread:
        """The thread with this id, created if it does not exist; tasks and processes that race all get the same thread.

        An existing thread must have this kind and these scopes, else `ThreadDiffers` names the difference; it keeps its
        own metadata, policy and chunks, and yours apply only to a new thread. Raises what `create_thread` raises.
        """
        scopes = ThreadScopes(kind, user_id, tenant_id, agent_id, parent_id)
        record = new_record(self._kernel, thread_id, scopes, metadata, policy)
        await open_thread(self._kernel, record, seeded(initial_chunks))
        return Thread(ThreadHandle(self._kernel, record.id))

    def thread(self, thread_id: str) -> Thread:
        """A handle to a thread, whoever's it is. The first call on it raises `ThreadNotFound` if there is none.

        It asks for no scopes, not even under `EngineConfig.scopes_required`: name only ids that your own program
        chose. For an id that a client sent, use `open_thread` with that client's scopes.
        """
        return Thread(ThreadHandle(self._kernel, checked_text("thread_id", thread_id)))

    def user(self, user_id: str, *, tenant_id: str = "") -> User:
        """A user's own thread: preferences, playbooks, memory. Its first event creates it.

        The same id in two tenants means two users. Raises `InvalidIdentifier`.
        """
        return User(ScopeHandle(self._kernel, "user", user_id, tenant_id))

    def tenant(self, tenant_id: str) -> Tenant:
        """A tenant's own thread: `agent.md`, memory. Raises `InvalidIdentifier`."""
        return Tenant(ScopeHandle(self._kernel, "tenant", tenant_id))

    def agent(self, agent_id: str, *, tenant_id: str = "") -> Agent:
        """An agent's own thread: its memory, and its grants to other agents. Raises `InvalidIdentifier`."""
        return Agent(ScopeHandle(self._kernel, "agent", agent_id, tenant_id))

    def industry(self, name: str) -> Industry:
        """An industry's own thread: the patterns that its tenants share. Raises `InvalidIdentifier`."""
        return Industry(ScopeHandle(self._kernel, "industry", name))

    async def threads(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        *,
        kind: str | None = None,
        user_id: str | None = None,
        tenant_id: str | None = None,
        agent_id: str | None = None,
        parent_id: str | None = None,
        status: str | None = None,
        metadata: Mapping[str, str] | None = None,
        order: Literal["created", "updated"] = "created",
        limit: int | None = None,
        after: ThreadInfo | str | None = None,
    ) -> list[ThreadInfo]:
        """The threads that match every given value exactly, in order of creation.

        `metadata` holds pairs that a thread's metadata must contain; it may contain others. `limit` keeps the latest N.
        To read in pages, pass `after=""` with a limit for the first page, then the last thread you got, or its id: you
        get the first N created after it. Threads created or deleted meanwhile never repeat or hide another thread; only
        one whose id was deleted and reused moves to the end. With `order="updated"` the thread with the newest last
        event comes first and `limit` keeps the first N: pass the last `ThreadInfo` you got as `after`, since it knows
        its position. A thread that gets an event meanwhile moves to the front, before your page.

        Raises `ThreadNotFound` for an `after` that never existed, `InvalidIdentifier`, `InvalidArgument`.
        """
        named = {"kind": kind, "user_id": user_id, "tenant_id": tenant_id, "agent_id": agent_id, "parent_id": parent_id}
        for what, value in (named | {"status": status}).items():
            if value is not None and value != "":
                check_identifier(what, value)
        if order not in ("created", "updated"):
            raise InvalidArgument("order", order, 'give "created" or "updated"')
        after_us = to_us(after.updated_at) if isinstance(after, ThreadInfo) else None
        after = after.id if isinstance(after, ThreadInfo) else after
        where = ThreadFilter(
            kind=kind,
            user_id=user_id,
            tenant_id=tenant_id,
            agent_id=agent_id,
            parent_id=parent_id,
            status=status,
            metadata=check_metadata(as_metadata(metadata)),
            order=order,
            limit=checked_limit(limit),
            after=None if after is None else checked_text("after", after),
            after_us=after_us,
        )
        found = await self._kernel.store.listed(where)
        return await aside(lambda: [ThreadInfo.of(*one) for one in found], items=len(found))

    # events

    async def dispatch(  # noqa: PLR0913 - what an envelope holds, by keyword
        self,
        thread_id: str,
        event: EventLike,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
        expected_seq: int | None = None,
    ) -> Receipt:
        """Append one event and return its receipt once it is durable.

        With your own `event_id`, dispatching again is idempotent and returns the first receipt. With `expected_seq`,
        raises `Conflict` if the thread holds more than you have seen. Raises what `Thread.dispatch` raises; then
        nothing was written.
        """
        return await self.thread(thread_id).dispatch(
            event,
            event_id=event_id,
            occurred_at=occurred_at,
            causation_id=causation_id,
            correlation_id=correlation_id,
            expected_seq=expected_seq,
        )

    async def dispatch_all(
        self, thread_id: str, events: Sequence[EventLike], *, expected_seq: int | None = None
    ) -> tuple[Receipt, ...]:
        """Append events in order, all or none (events already recorded, by id, count as appended). See `dispatch`."""
        return await self.thread(thread_id).dispatch_all(events, expected_seq=expected_seq)

    async def is_blocked(self, thread_id: str) -> bool:
        """Whether events of a thread are waiting. See `Admin.is_blocked`."""
        return await self.thread(thread_id).admin.is_blocked()

    async def blocking_reason(self, thread_id: str) -> BlockingReason | None:
        """Why events of a thread are waiting, or `None`. See `Admin.blocking_reason`."""
        return await self.thread(thread_id).admin.blocking_reason()

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` after each commit of this engine; returns a function that stops it. Its errors are logged."""
        return self._kernel[Observers].add(checked_function("observer", observer))

    def register_compactor(self, compactor: Compactor) -> None:
        """Ask this compactor before all others."""
        self._kernel[CompactionService].register(compactor)

    def before_compaction(self, hook: BeforeCompaction) -> Callable[[], None]:
        """Call `hook(thread, upcoming)` before each compaction and each redo; returns a function that stops it.

        It may dispatch. A text that it returns joins the instructions. `compaction_started` notes failures.
        """
        return self._kernel[CompactionService].hooks.add(checked_function("hook", hook), self.thread)

    # the whole store

    async def search(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        query: str,
        *,
        thread_ids: Collection[str] | None = None,
        kind: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        tenant_id: str = "",
        limit: int = 10,
        kinds: Sequence[str] = (),
        as_of: datetime | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
        min_trust: str | None = None,
    ) -> "Found":
        """The best passages across several threads: the given ones, or all that match every given value exactly.

        `tenant_id` is one of the values: without it, only threads without a tenant are searched, never a tenant's.
        What-ifs are hypothetical, and searched only if `thread_ids` names them. See `Thread.search`; also raises
        `InvalidSearch` if you give both `thread_ids` and values.
        """
        wanted = asked(
            query,
            limit=limit,
            kinds=kinds,
            at=None,
            as_of=as_of,
            since=since,
            until=until,
            explain=explain,
            min_trust=min_trust,
        )
        check_one_tenant(tenant_id)
        for what, value in {"kind": kind, "user_id": user_id, "agent_id": agent_id}.items():
            checked_name(what, value)
        if isinstance(thread_ids, str):
            raise InvalidSearch("thread_ids", thread_ids, "it is a list of ids; put the one into a list")
        if thread_ids is not None:
            thread_ids = checked_list("thread_ids", thread_ids, str, each="ids of threads")
        if thread_ids is not None and (kind or user_id or agent_id or tenant_id):
            raise InvalidSearch("thread_ids", list(thread_ids), "name threads, or what they are to match, not both")
        where = ThreadFilter(kind=kind, user_id=user_id, agent_id=agent_id, tenant_id=tenant_id)
        return await self._recall.search_store(wanted, thread_ids, where)

    async def stats(self) -> StoreStats:
        """Totals over the store."""
        return await self._kernel.store.stats()

    async def flush(self) -> None:
        """Make all acknowledged events survive a power failure, under any `durability`."""
        await self._kernel.store.flush()

    async def settle(self) -> None:
        """Wait until no compaction is running and asynchronous projections and vectors are up to date."""
        kernel = self._kernel
        await kernel[Relay].recover()
        await kernel[Relay].settle()
        for runtime in kernel[OpenThreads].all():
            await kernel[CompactionService].settle(runtime)
            for projection in kernel.projections:
                if projection.mode == "async":
                    await kernel[follower.ProjectionWorker].catch_up(projection, runtime.id)
        await self._recall.settle()

    # looking back

    async def verify(
        self, thread_ids: Collection[str] | None = None, progress: "VerifyProgress | None" = None
    ) -> "list[VerifyReport]":
        """Verify the given threads, or all of them, but those that are deleted meanwhile (see `Replay.verify`).

        Raises `ThreadNotFound` for a given one that does not exist.
        """
        checked_call("progress", progress)
        if thread_ids is None:
            every = [info.id for info in await self.threads()]
            return await of_store.verify_threads(self._kernel, every, progress, may_go=True)
        thread_ids = checked_list("thread_ids", thread_ids, str, each="ids of threads")
        return await of_store.verify_threads(self._kernel, thread_ids, progress)

    async def copy_to(
        self, target: "Engine", progress: "store_copy.CopyProgress | None" = None
    ) -> "store_copy.CopyReport":
        """Copy every thread of this store to another engine's store, on any back end, with the same ids and hashes.

        Includes forks, scopes, ids of deleted threads, holds and other acts, and what is known to be broken; views
        continue from where they were, and the search index is rebuilt. This store is only read: you can open it
        read-only, and events written to it meanwhile come with the next copy. If a copy is interrupted, run it again.
        At the end each thread is verified at the target; one that cannot be read here is named in the report and takes
        no events there, and the others are copied all the same.

        Raises `CopyRefused` for a target that holds other threads, `ReadOnly`, `StorageError` if the target fails.
        """
        checked_type("target", target, Engine, give="the engine of another store")
        await imported(store_copy)
        return await store_copy.copy_store(self._kernel, target._kernel, checked_call("progress", progress))

    async def correlated(
        self, correlation_id: str, *, tenant_id: str = "", limit: int | None = None
    ) -> list[RecordedEvent]:
        """The events with a correlation id, from one tenant's threads, in the order they were recorded.

        Without a `tenant_id`, those of threads without a tenant, as in `search`: ids can be guessed, and two tenants
        may use the same one. `limit` keeps the latest N. Events that forks share come once, from the thread that
        recorded them. Raises `InvalidSearch`.
        """
        check_one_tenant(tenant_id)
        wanted = checked_text("correlation_id", correlation_id)
        found = await self._kernel.store.correlated(wanted, limit=checked_limit(limit), tenant_id=tenant_id)
        return [self._kernel.reader.decode(thread_id, stored) for thread_id, stored in found]


def kernel_of(engine: Engine) -> Kernel:
    """The kernel that an engine holds: what adapters and commands are made of."""
    return engine._kernel


async def _finish_quietly(kernel: Kernel) -> None:
    """Continue unfinished acts; errors are logged. Does not keep an otherwise unused engine alive."""
    try:
        if await kernel.store.acts(pending=True):
            await erasing.finish_acts(kernel)
    except MemoryEngineError as error:
        _log.warning("%s", error)
