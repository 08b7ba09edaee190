"""The relay: carries facts from outboxes to their threads, each once."""

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from memory_engine.errors import MemoryEngineError, ThreadNotFound
from memory_engine.events import Destination, FactsDelivered, Reach
from memory_engine.projections.outbox import FACTS, OUTBOX

if TYPE_CHECKING:
    from memory_engine.engine import Engine

_log = logging.getLogger("memory_engine.relay")


class Relay:
    """Delivers for one engine. A fact that cannot be delivered stays in its outbox and is logged."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._locks: dict[str, asyncio.Lock] = {}
        self._recovery: asyncio.Task[None] | None = None
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def recover(self) -> None:
        """Deliver what processes that died have left. Waited for by the first who reads a user, tenant or agent."""
        if self._recovery is None:
            self._recovery = self._engine.spawn(self._recover())
        if not self._recovery.done():
            await asyncio.shield(self._recovery)

    async def _recover(self) -> None:
        for thread_id in await self._engine.store.holders(OUTBOX.name, OUTBOX.version):
            await self._try(thread_id)

    def touched(self, thread_id: str) -> None:
        """A thread has new facts: deliver them soon."""
        if thread_id not in self._under_way:
            task = self._under_way[thread_id] = self._engine.spawn(self._try(thread_id))
            task.add_done_callback(lambda _: self._under_way.pop(thread_id, None))

    async def settle(self) -> None:
        """Wait until what is under way has arrived, or was found impossible to deliver."""
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    async def _try(self, thread_id: str) -> None:
        try:
            await self.deliver(thread_id)
        except MemoryEngineError as error:
            _log.warning("facts of thread %r wait to be delivered: %s", thread_id, error)

    async def deliver(self, thread_id: str) -> None:
        """Deliver all that waits in a thread's outbox.

        Raises what the dispatch to their threads raises; they then stay where they are.
        """
        async with self._locks.setdefault(thread_id, asyncio.Lock()):
            source = self._engine.thread(thread_id)
            waiting = [row for _, row in (await source.rows(OUTBOX)).items()]
            for row in waiting:
                target = self._engine.scope(row.fact.destination)
                event = row.decode(self._engine.events)
                await target.dispatch(event, event_id=row.fact.arrival, causation_id=row.fact.event_id)
            if waiting:
                facts = tuple(row.fact.id for row in waiting)
                await source.dispatch(FactsDelivered(facts=facts))

    async def reach(self, thread_id: str, event_ids: Collection[str]) -> tuple[Reach, ...]:
        """Where facts went that came of these events of a thread, or were drawn from them. Delivers first."""
        await self.deliver(thread_id)
        forgotten = frozenset(event_ids)
        rows = await self._engine.thread(thread_id).rows(FACTS)
        facts = [fact for _, fact in rows.items() if not forgotten.isdisjoint((fact.event_id, *fact.sources))]
        seqs: dict[Destination, list[int]] = {}
        for fact in facts:
            target = self._engine.scope(fact.destination)
            try:
                found = await self._engine.store.find(target.id, [fact.arrival])
            except ThreadNotFound:
                continue
            seqs.setdefault(fact.destination, []).extend(stored.seq for stored in found)
        return tuple(Reach(destination, tuple(sorted(where))) for destination, where in seqs.items() if where)
