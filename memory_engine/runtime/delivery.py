"""After a commit: facts go from outboxes to their threads, each once."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from memory_engine.core.events.delivery import Destination, FactsDelivered, RefusedFact
from memory_engine.core.events.memory import ExecutionResume, MemoryForget, Reach
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import PAUSED
from memory_engine.errors import (
    EngineClosed,
    IdempotencyConflict,
    InvalidEvent,
    InvalidIdentifier,
    MemoryEngineError,
    ThreadClosed,
    ThreadNotFound,
    WrongThreadKind,
)
from memory_engine.projections.outbox import FACTS, OUTBOX, OutboxFact, WaitingFact, check_destination, is_within
from memory_engine.runtime.correlation import UNLINKED, Links, linked
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.scoped import scope_of
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import Store, ThreadFilter

if TYPE_CHECKING:
    from memory_engine.store import attested
else:
    attested = lazy_module("memory_engine.store.attested")

_log = logging.getLogger("memory_engine.relay")

_FOR_GOOD = (ThreadClosed, ThreadNotFound, WrongThreadKind, InvalidIdentifier, IdempotencyConflict)
"""Errors of a thread that will never take a fact: it is archived or deleted, say."""


class _Round(msgspec.Struct):
    """The outcome of one outbox. Facts for a thread in `stuck` wait, in their order; threads in `onward` come next."""

    patient: bool
    tenant_id: str = ""
    arrived: list[str] = msgspec.field(default_factory=list)
    refused: list[RefusedFact] = msgspec.field(default_factory=list)
    errors: list[MemoryEngineError] = msgspec.field(default_factory=list)
    stuck: set[Destination] = msgspec.field(default_factory=set)
    onward: dict[str, None] = {}


class Relay:
    """Delivers for one engine. A fact whose thread cannot take it now stays in its outbox and is logged.

    `before` is awaited with a thread before what waits in its outbox is delivered; `owing` finds the threads that a
    process which died has left with something to do then.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.before: list[Callable[[ThreadHandle], Awaitable[None]]] = []
        self.owing: list[Callable[[Store], Awaitable[Sequence[str]]]] = []
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._recovery: asyncio.Task[None] | None = None
        self._touched: set[str] = set()
        self._paused: set[str] = set()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._attended: Counter[str] = Counter()

    async def recover(self) -> None:
        """Deliver the facts that dead processes have left. The first read of a user, tenant or agent waits for this.

        Raises the errors of the store; the next read tries again.
        """
        self._kernel.home.entered()
        if self._kernel.config.read_only:
            return
        task = self._recovery
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._recovery = self._kernel.tasks.spawn(self._recover())
        if not task.done():
            await asyncio.shield(task)

    async def _recover(self) -> None:
        for thread_id in await self._kernel.store.holders(OUTBOX.name, OUTBOX.version):
            await self._try(thread_id)
        for owing in self.owing:
            for thread_id in await owing(self._kernel.store):
                await self._try(thread_id)

    def listen(self, threads: OpenThreads) -> None:
        """Deliver after events that have facts for other threads, and after a pause, for whose end some waited."""
        threads.on_facts.append(lambda runtime: self.touched(runtime.id))
        threads.on_event[ExecutionResume.event_type].append(lambda _, __: self.resumed())

    def touched(self, thread_id: str) -> None:
        """Deliver the new facts of a thread soon, unless a caller does."""
        self._touched.add(thread_id)
        if thread_id not in self._under_way and not self._attended[thread_id]:
            self._under_way[thread_id] = self._kernel.tasks.spawn(self._follow(thread_id))

    def resumed(self) -> None:
        """Go on with the facts that waited for the end of a pause."""
        waiting, self._paused = self._paused, set()
        for thread_id in waiting:
            self.touched(thread_id)

    def moved(self) -> None:
        """Go on on another event loop: whoever delivered on the one before has ended, or never began."""
        self._locks.clear()
        self._under_way.clear()
        self._recovery = None
        for thread_id in list(self._touched):
            self.touched(thread_id)

    async def settle(self) -> None:
        """Wait until the facts under way have arrived, or proved impossible to deliver."""
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    async def _follow(self, thread_id: str) -> None:
        """Deliver until no new facts have come meanwhile."""
        try:
            while thread_id in self._touched and not self._attended[thread_id]:
                self._touched.discard(thread_id)
                await self._try(thread_id)
        finally:
            self._under_way.pop(thread_id, None)

    async def _try(self, thread_id: str) -> None:
        try:
            with suppress(EngineClosed):  # the next process that opens the store delivers
                await self._deliver(thread_id, patient=False)
        except MemoryEngineError as error:
            _log.warning("facts of thread %r wait to be delivered: %s", thread_id, error)

    @asynccontextmanager
    async def attended(self, thread_id: str) -> AsyncIterator[None]:
        """Leave the new facts of a thread to the caller, who delivers them: it hears which of them are refused."""
        self._attended[thread_id] += 1
        try:
            under_way = self._under_way.get(thread_id)
            if under_way is not None and under_way is not asyncio.current_task():
                await asyncio.wait([under_way])
            yield
        finally:
            self._attended[thread_id] -= 1
            if not self._attended[thread_id]:
                del self._attended[thread_id]
                if thread_id in self._touched:
                    self.touched(thread_id)

    async def deliver(self, thread_id: str) -> None:
        """Deliver all waiting facts of a thread's outbox, also those for a paused thread, once it is resumed.

        Raises the first error of their threads, once everything possible is delivered. A fact that cannot be delivered
        now stays in the outbox; one that never can be leaves it as refused.
        """
        await self._deliver(thread_id, patient=True)

    async def _deliver(self, thread_id: str, *, patient: bool) -> None:
        done = _Round(patient)
        with linked(UNLINKED):  # the facts that wait here came of other calls than the one that delivers them
            await self._round(thread_id, done)
        for tenant_thread in done.onward if patient else ():  # events forgotten there may have been shared
            try:
                await self._deliver(tenant_thread, patient=True)
            except MemoryEngineError as error:
                done.errors.append(error)
        if done.errors:
            raise done.errors[0]

    async def _round(self, thread_id: str, done: "_Round") -> None:
        async with self._locks.setdefault(thread_id, asyncio.Lock()):
            source = ThreadHandle(self._kernel, thread_id)
            if not done.patient and await self._is_paused(thread_id):
                self._paused.add(thread_id)
            else:
                for prepare in self.before:
                    await prepare(source)
            waiting = [row for _, row in (await source.rows(OUTBOX)).items()]
            elsewhere = await attested.imported_of(self._kernel.store, thread_id) if waiting else ()
            done.tenant_id = await self._tenant_of(thread_id) if waiting else ""
            for row in waiting:
                if row.fact.seq not in elsewhere and row.fact.destination not in done.stuck:
                    await self._carry(row, thread_id, done)
            if done.arrived or done.refused:
                with suppress(ThreadClosed):  # an archived sender cannot record it; its facts arrive once all the same
                    await source.dispatch(FactsDelivered(facts=tuple(done.arrived), refused=tuple(done.refused)))

    async def _carry(self, row: WaitingFact, thread_id: str, done: "_Round") -> None:
        fact = row.fact
        try:
            check_destination(fact.type, fact.destination, done.tenant_id)
        except InvalidEvent as error:  # where a server lets a role write, it may write a row that no event brought
            self._refuse(fact, thread_id, error, done)
            return
        try:
            target = scope_of(self._kernel, fact.destination)
            if not done.patient and await self._is_paused(target.id):
                done.stuck.add(fact.destination)
                self._paused.add(thread_id)
                return
            event = row.decode(self._kernel.events)
            with linked(UNLINKED if self._kernel.kind(target.kind).pooled else await self._links(thread_id, fact)):
                await target.dispatch(event, event_id=fact.arrival)
            done.arrived.append(fact.id)
            if target.kind == "tenant" and isinstance(event, MemoryForget):
                done.onward[target.id] = None
        except _FOR_GOOD as error:
            self._refuse(fact, thread_id, error, done)
        except MemoryEngineError as error:
            done.stuck.add(fact.destination)
            done.errors.append(error)

    def _refuse(self, fact: OutboxFact, thread_id: str, error: MemoryEngineError, done: "_Round") -> None:
        _log.warning("fact %s of thread %r can never arrive: %s", fact.id, thread_id, error)
        done.refused.append(RefusedFact(fact.id, str(error)))
        if done.patient:
            done.errors.append(error)

    async def _links(self, thread_id: str, fact: OutboxFact) -> Links:
        """The links of a fact's arrival: the event that brought it, and that event's correlation id."""
        row = (await self._kernel.reader.rows_at(thread_id, [fact.seq])).get(fact.seq)
        return Links(fact.event_id, row.correlation_id if row is not None else "")

    async def _tenant_of(self, thread_id: str) -> str:
        found = await self._kernel.store.threads(ThreadFilter(id=thread_id))
        return found[0][0].tenant_id if found else ""

    async def _is_paused(self, thread_id: str) -> bool:
        try:
            return (await self._kernel.store.head(thread_id)).status == PAUSED
        except ThreadNotFound:
            return False

    async def reach(self, thread_id: str, event_ids: Collection[str]) -> tuple[tuple[Reach, ...], tuple[int, ...]]:
        """The threads that facts of these events went to, or facts drawn from them. Delivers first.

        It also returns the seqs of the events whose facts have not left: forgetting these too drops the facts.
        """
        try:
            await self.deliver(thread_id)
        except MemoryEngineError as error:  # an undeliverable fact must not prevent a forgetting
            _log.warning("facts of thread %r wait while some are forgotten: %s", thread_id, error)
        waiting = {row.fact.id for _, row in (await ThreadHandle(self._kernel, thread_id).rows(OUTBOX)).items()}
        facts = await self._drawn_from(thread_id, event_ids)
        seqs: dict[Destination, list[int]] = {}
        for fact in facts:
            if not self._kernel.kind(fact.destination.kind).pooled:  # a share of which is withdrawn: `withdraw_orphans`
                _, found = await self._arrived(fact)
                seqs.setdefault(fact.destination, []).extend(stored.seq for stored in found)
        reach = tuple(Reach(destination, tuple(sorted(where))) for destination, where in seqs.items() if where)
        return reach, tuple(fact.seq for fact in facts if fact.id in waiting)

    async def arrivals(self, thread_id: str, event_ids: Collection[str] | None) -> dict[str, list[str]]:
        """The events that facts of these events (`None`: of all) became in other threads: their ids, by thread."""
        found: dict[str, list[str]] = {}
        for fact in await self._drawn_from(thread_id, event_ids):
            target, arrived = await self._arrived(fact)
            found.setdefault(target, []).extend(stored.id for stored in arrived)
        return {target: ids for target, ids in found.items() if ids}

    async def _drawn_from(self, thread_id: str, event_ids: Collection[str] | None) -> list[OutboxFact]:
        held = [fact for _, fact in (await ThreadHandle(self._kernel, thread_id).rows(FACTS)).items()]
        tenant_id = await self._tenant_of(thread_id) if held else ""
        facts = [fact for fact in held if is_within(fact.destination, tenant_id)]  # else none was delivered
        if event_ids is None:
            return facts
        wanted = frozenset(event_ids)
        return [fact for fact in facts if not wanted.isdisjoint((fact.event_id, *fact.sources))]

    async def _arrived(self, fact: OutboxFact) -> tuple[str, Sequence[StoredEvent]]:
        """The thread that a fact was for, and its event there; none while it has not arrived."""
        try:
            target = scope_of(self._kernel, fact.destination).id
            return target, await self._kernel.store.find(target, [fact.arrival])
        except (ThreadNotFound, InvalidIdentifier):
            return "", ()
