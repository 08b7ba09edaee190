"""The engine: opens threads and orders the effects. It decides nothing."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType

from attrs import frozen

from memory_engine.attempt import Reduced
from memory_engine.caches import Caches
from memory_engine.cancellation import finished
from memory_engine.clock import Clock
from memory_engine.codec import encode_event
from memory_engine.compaction.base import Compactor
from memory_engine.compaction.service import CompactionService
from memory_engine.config import EngineConfig
from memory_engine.context.rendering import Renderer
from memory_engine.correlation import UNLINKED, linked
from memory_engine.directory import OpenThreads
from memory_engine.errors import EngineClosed, EventTooLarge, InvalidSearch, ReadOnly, ThreadNotFound
from memory_engine.events.base import Event
from memory_engine.events.delivery import Destination
from memory_engine.events.execution import ExecutionResume
from memory_engine.events.memory import InitialChunk, MemoryForget, ThreadSeeded
from memory_engine.events.registry import EventRegistry
from memory_engine.ids import IdSource, check_identifier
from memory_engine.llm.base import LanguageModel
from memory_engine.persistence import (
    CompactionPolicy,
    Head,
    Store,
    StoreStats,
    ThreadFilter,
    ThreadRecord,
    check_record,
)
from memory_engine.pools import INDUSTRY, recorded_us
from memory_engine.preparing import Preparer
from memory_engine.projections.base import Projection
from memory_engine.projections.inline import InlinePlan
from memory_engine.projections.outbox import DELIVERING
from memory_engine.projections.patterns.redaction import Redactor
from memory_engine.projections.preferences.domain import Domain
from memory_engine.projections.promotion.scoring import Scorer
from memory_engine.projections.worker import ProjectionWorker
from memory_engine.queue import Request
from memory_engine.reading import LogReader
from memory_engine.recall.base import Embedder, VectorIndexFactory
from memory_engine.recall.found import Found
from memory_engine.recall.kept import KeptVectors, forgotten_at
from memory_engine.recall.passages import Extractors
from memory_engine.recall.ranking import Ranker
from memory_engine.recall.reranking import Reranker
from memory_engine.recall.service import Recall
from memory_engine.recall.similarity import TextIndex
from memory_engine.recall.vectors import Graphs
from memory_engine.records import NewEvent, Receipt, RecordedEvent
from memory_engine.reducing import ReduceContext, ReducerRegistry, reduce_into
from memory_engine.relay import Relay
from memory_engine.replay.verify import Verifier
from memory_engine.replayable import ReplayableStore
from memory_engine.runtime import ThreadRuntime
from memory_engine.scopes import Agent, Industry, Scope, Tenant, User
from memory_engine.searchable import asked
from memory_engine.state import State
from memory_engine.thread import Thread
from memory_engine.thread_info import ThreadInfo
from memory_engine.tokens import TokenCounter

_log = logging.getLogger("memory_engine")

PAUSED_S = 0.1
"""How often a closing engine looks whether what it waits for waits for the end of a pause."""
SIMILARITIES_MAX = 256
"""Indexes of likeness that are kept in memory, each of one view of one thread."""

Observer = Callable[[RecordedEvent], None]
"""Called after an event became durable, at most once for each, in the order of its thread. Must not block."""


@frozen(kw_only=True)
class Parts:
    """What an engine is made of; `wiring.open` puts it together."""

    store: Store
    config: EngineConfig
    events: EventRegistry
    reducers: ReducerRegistry
    compactors: Sequence[tuple[Compactor, int]]
    fallback: Compactor
    projections: tuple[Projection[object], ...]
    renderers: Mapping[str, Renderer]
    counter: TokenCounter
    clock: Clock
    ids: IdSource
    domain: Domain
    model: LanguageModel | None
    embedder: Embedder | None
    vector_index: VectorIndexFactory
    graphs: Graphs | None
    extractors: Extractors
    ranker: Ranker
    reranker: Reranker | None
    redactor: Redactor | None
    scorers: Sequence[Scorer]


class Engine(ReplayableStore):
    """Dispatches events to threads and derives what people and models see. Open it with `memory_engine.open`."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.config = parts.config
        self.store = parts.store
        self.events = parts.events
        self.reducers = parts.reducers
        self.extractors = parts.extractors
        self.preparer = Preparer(parts.events, parts.ids, parts.clock, parts.config.event_bytes_max)
        self.closing = False
        self.closed = False
        self.reader = LogReader(parts.store, parts.events, read_only=parts.config.read_only)
        self.compaction = CompactionService(self, parts.config.compaction, parts.compactors, parts.fallback)
        self.plan = InlinePlan(parts.projections)
        self.worker = ProjectionWorker(
            parts.store, self.reader, tuple(p for p in parts.projections if p.mode == "async")
        )
        self.directory = OpenThreads(self, self.plan)
        self.verifier = Verifier(parts.store, self.reader, parts.reducers, parts.projections, parts.extractors)
        self.relay = Relay(self)
        self.scopes_seen: set[str] = set()
        self.flights: dict[tuple[str, str], asyncio.Future[str]] = {}
        self.caches: Caches = Caches()
        self.recall = Recall(self)
        self._observers: list[Observer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._endless: set[asyncio.Task[None]] = set()
        self._close_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Engine":
        if self.config.read_only:
            return self
        if any(p.mode == "async" for p in self.parts.projections):
            self.spawn(self.worker.run(), until_close=True)
        self.spawn(self.relay.recover())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End compactions (their originals stand), let commits finish, fail what still waits, close the store."""
        if self._close_task is None:
            self.closing = True
            self._close_task = asyncio.get_running_loop().create_task(self._close())
        await finished(self._close_task)

    async def _close(self) -> None:
        for task in self._endless:
            task.cancel()
        while self._tasks:
            self.directory.release_paused()
            await asyncio.wait(self._tasks, timeout=PAUSED_S)
        await self.directory.close()
        self.closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.store.close()

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
        """Make a thread. Without an id it gets a UUIDv7.

        `initial_chunks` become its first event. `policy` replaces the engine's compaction
        policy for this thread. Raises `ThreadExists`, `InvalidIdentifier`, and for initial
        chunks what `dispatch` raises; then there is no thread.
        """
        record = ThreadRecord(
            id=thread_id or self.new_id(),
            kind=kind,
            user_id=user_id,
            tenant_id=tenant_id,
            agent_id=agent_id,
            parent_id=parent_id,
            metadata=dict(metadata or {}),
            policy=policy,
            created_at_us=recorded_us(kind, self.now_us()),
        )
        self.check_writable("a thread")
        check_record(record)
        seeded = ThreadSeeded(chunks=tuple(initial_chunks))
        if initial_chunks:
            self.try_first(record.id, seeded)
        await self.store.create(record, Head(), ())
        thread = Thread(self, record.id)
        if initial_chunks:
            await thread.dispatch(seeded)
        return thread

    def check_writable(self, what: str) -> None:
        """Raise `ReadOnly` where this engine only looks."""
        if self.config.read_only:
            raise ReadOnly(what)

    def try_first(self, thread_id: str, event: Event) -> None:
        """Reduce an event as the first of a thread: what will be refused is refused before the id is taken."""
        payload, recorded = encode_event(event, self.events)
        if len(payload) > self.config.event_bytes_max:
            raise EventTooLarge(recorded.event_type, len(payload), self.config.event_bytes_max)
        reducers = self.reducers.of_type(recorded.event_type)
        reduce_into(State().draft(), reducers, recorded, ReduceContext(1, "", self.now_us()), thread_id)

    def thread(self, thread_id: str) -> Thread:
        """A handle to a thread. The first call on it raises `ThreadNotFound` if there is none."""
        return Thread(self, thread_id)

    def user(self, user_id: str, *, tenant_id: str = "") -> User:
        """A user's own thread: preferences, playbooks, memory. It is made by the first event for it.

        Raises `InvalidIdentifier`. Users of one id in two tenants are two users.
        """
        return User(self, user_id, tenant_id)

    def tenant(self, tenant_id: str) -> Tenant:
        """A tenant's own thread: `agent.md`, memory. Raises `InvalidIdentifier`."""
        return Tenant(self, tenant_id)

    def agent(self, agent_id: str, *, tenant_id: str = "") -> Agent:
        """An agent's own thread: its memory, and what it grants to others. Raises `InvalidIdentifier`."""
        return Agent(self, agent_id, tenant_id)

    def industry(self, name: str) -> Industry:
        """An industry's own thread: patterns that its tenants share. Raises `InvalidIdentifier`."""
        return Industry(self, name)

    def scope(self, destination: Destination) -> Scope:
        """The thread that a fact is for."""
        if destination.kind == "user":
            return self.user(destination.id, tenant_id=destination.tenant_id)
        if destination.kind == "agent":
            return self.agent(destination.id, tenant_id=destination.tenant_id)
        return self.industry(destination.id) if destination.kind == "industry" else self.tenant(destination.id)

    async def threads(  # noqa: PLR0913 - scopes are keywords of the public face
        self,
        *,
        kind: str | None = None,
        user_id: str | None = None,
        tenant_id: str | None = None,
        agent_id: str | None = None,
        parent_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> list[ThreadInfo]:
        """The threads that match every given value exactly, oldest first; `limit` keeps the latest N."""
        for value in filter(None, (kind, user_id, tenant_id, agent_id, parent_id)):
            check_identifier("filter", value)
        where = ThreadFilter(
            kind=kind,
            user_id=user_id,
            tenant_id=tenant_id,
            agent_id=agent_id,
            parent_id=parent_id,
            status=status,
            limit=limit,
        )
        return [ThreadInfo.of(record, head) for record, head in await self.store.threads(where)]

    # events

    async def dispatch(  # noqa: PLR0913 - what an envelope holds, by keyword
        self,
        thread_id: str,
        event: Event | NewEvent,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
    ) -> Receipt:
        """Append one event; returns when it is durable.

        With an `event_id` of the caller's, dispatching again gives the first receipt. Raises
        `InvalidEvent`, `EventTooLarge`, `ThreadNotFound`, `ThreadClosed`, `ReducerError`,
        `IdempotencyConflict`, `QueueFull`, or a `StorageError`; then nothing was written.
        """
        if self.closing:
            raise EngineClosed
        if isinstance(event, NewEvent):
            prepared = self.preparer.one(event)
        else:
            prepared = self.preparer.parts(event, event_id, occurred_at, causation_id, correlation_id)
        runtime = self.directory.get(thread_id) or await self.directory.open(thread_id)
        request = Request((prepared,), system=type(prepared.event) is ExecutionResume)
        return (await runtime.submit(request))[0]

    async def dispatch_all(self, thread_id: str, events: Sequence[Event | NewEvent]) -> tuple[Receipt, ...]:
        """Append events in order, all or none of them (those recorded already, by id, count as appended)."""
        if not events:
            return ()
        runtime = self.directory.get(thread_id) or await self.directory.open(thread_id)
        request = self.request(events)
        return await runtime.submit(request)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` after each commit of this engine; returns what ends it. What it raises is logged."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def register_compactor(self, compactor: Compactor) -> None:
        """Ask this compactor before all others."""
        self.compaction.register(compactor)

    def similarity(self, thread_id: str, view: str) -> TextIndex:
        """The index over the texts of a thread's view, by likeness; those used longest ago are made anew."""
        embedder, runtime = self.recall.embedder, self.directory.get(thread_id)
        forgot = forgotten_at(runtime.head) if runtime is not None else 0
        return self.caches.made(
            thread_id,
            f"similar:{view}:{embedder.name if embedder is not None else ''}",
            lambda: TextIndex(
                embedder, self.parts.vector_index, KeptVectors(self.store, thread_id, view, forgotten_at=forgot)
            ),
            at_most=SIMILARITIES_MAX,
        )

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
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
    ) -> Found:
        """The best passages over several threads: the given ones, or all that match every given value exactly.

        `tenant_id` is one of the values: without it, threads of no tenant are searched, never those of any.
        See `Thread.search`; raises `InvalidSearch` also where both `thread_ids` and values are given.
        """
        wanted = asked(query, limit=limit, kinds=kinds, at=None, since=since, until=until, explain=explain)
        if tenant_id is None:
            raise InvalidSearch("tenant_id", tenant_id, "threads of no tenant go by an empty text; name one tenant")
        if isinstance(thread_ids, str):
            raise InvalidSearch("thread_ids", thread_ids, "it is a list of ids; put the one into a list")
        if thread_ids is not None and (kind or user_id or agent_id or tenant_id):
            raise InvalidSearch("thread_ids", list(thread_ids), "name threads, or what they are to match, not both")
        where = ThreadFilter(kind=kind, user_id=user_id, agent_id=agent_id, tenant_id=tenant_id)
        if thread_ids is not None:
            return await self.recall.search(list(dict.fromkeys(thread_ids)), wanted)
        while True:
            found = [record for record, _ in await self.store.threads(where)]
            with suppress(ThreadNotFound):  # one was deleted meanwhile: look again which there are
                return await self.recall.search([one.id for one in found if kind or one.kind != INDUSTRY], wanted)

    async def stats(self) -> StoreStats:
        """Totals over the store."""
        return await self.store.stats()

    async def flush(self) -> None:
        """Make all that was acknowledged survive a power failure, whatever `durability` says."""
        await self.store.flush()

    async def settle(self) -> None:
        """Wait until no compaction is under way, and asynchronous projections and vectors are up to date."""
        await self.relay.recover()
        await self.relay.settle()
        for runtime in self.directory.all():
            await self.compaction.settle(runtime)
            for projection in self.parts.projections:
                if projection.mode == "async":
                    await self.worker.catch_up(projection, runtime.id)
        await self.recall.settle()

    # what its parts ask of it

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return self.parts.clock.now_us()

    def new_id(self) -> str:
        """A fresh UUIDv7."""
        return self.parts.ids.event_id(self.now_us())

    def spawn(self, work: Coroutine[object, object, None], *, until_close: bool = False) -> asyncio.Task[None]:
        """Run in a task that the engine owns; what it raises is logged.

        When the engine closes it waits for the task's end, and with `until_close` cancels it first.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        if until_close:
            self._endless.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._endless.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task of the engine failed", exc_info=error)

    def request(self, events: Sequence[Event | NewEvent], *, system: bool = False) -> Request:
        """Encode events so that waiting cannot change them. While the engine closes, it takes `system` ones only."""
        if self.closed or (self.closing and not system):
            raise EngineClosed
        prepared = self.preparer.all(events)
        resuming = all(isinstance(one.event, ExecutionResume) for one in prepared)
        return Request(prepared, system=system or resuming)

    def committed(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        """Let compaction look at the thresholds, and tell observers and projections.

        The queue is blocked now, if it must be. The others are told in the loop's next
        round: the senders go on first.
        """
        self.compaction.after_commit(runtime, reduced[-1].stored if reduced else None)
        if runtime.indexed and self.recall.embedder is not None:
            self.recall.embedding.touched(runtime.id)
        for step in reduced:
            if step.stored.type in DELIVERING:
                self.relay.touched(runtime.id)
            if step.stored.type == MemoryForget.event_type:
                self.caches.drop(runtime.id)
                if self.recall.graphs is not None:
                    self.spawn(self.recall.forget_thread(runtime.id))
            if step.stored.type == ExecutionResume.event_type:
                self.relay.resumed()
        if self._observers or self.worker.is_needed:
            asyncio.get_running_loop().call_soon(self._tell, runtime, reduced)

    def _tell(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        for step in reduced if self._observers else ():
            recorded = runtime.recorded(step)
            for observer in list(self._observers):
                self._notify(observer, recorded)
        self.worker.touched(runtime.id)

    def _notify(self, observer: Observer, recorded: RecordedEvent) -> None:
        try:
            with linked(UNLINKED):  # of whoever sent the events that were committed, there may be several
                observer(recorded)
        except Exception:  # the boundary to user code: the event is durable, whatever an observer makes of it
            _log.exception("an observer failed on seq %d of thread %r", recorded.seq, recorded.thread_id)

    async def state_at(self, thread_id: str, seq: int) -> State:
        """The state after the event at `seq`."""
        return await self.reader.state_at(thread_id, seq)
