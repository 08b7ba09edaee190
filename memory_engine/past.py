"""A thread as it was: the handle whose every read is as of one seq."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn, TypeVar

from msgspec.structs import replace

from memory_engine.compaction.running import CompactionReport
from memory_engine.context.builder import Context
from memory_engine.context.policy import DEFAULT_POLICY, ContextPolicy
from memory_engine.errors import PastIsReadOnly
from memory_engine.events.base import Event
from memory_engine.moments import Moment, seq_of
from memory_engine.projections.base import Projection, Rows
from memory_engine.projections.refolding import rows_at
from memory_engine.queue import BlockingReason
from memory_engine.recall.found import Found
from memory_engine.records import NewEvent, Receipt, RecordedEvent
from memory_engine.replay.verify import Progress
from memory_engine.state import State
from memory_engine.thread import Thread
from memory_engine.thread_info import ThreadInfo

if TYPE_CHECKING:
    from memory_engine.compaction.base import Compactor
    from memory_engine.engine import Engine
    from memory_engine.projections.reports import Report
    from memory_engine.replay.why import Why
    from memory_engine.runtime import ThreadRuntime

V = TypeVar("V")


class Past(Thread):
    """A thread after the event at `seq`: state, context, search and every view, as they were.

    Where a thread's method takes `at`, this is it unless an earlier one is given. Whatever would write raises
    `PastIsReadOnly`; `fork` begins there. Reading it writes caches at most, and nothing where the engine only reads.
    """

    def __init__(self, engine: "Engine", thread_id: str, seq: int) -> None:
        super().__init__(engine, thread_id)
        self.seq = self._last = seq
        self._at_seq: State | None = None

    def __repr__(self) -> str:
        return f"Past({self.id!r}, seq={self.seq})"

    @classmethod
    async def of(cls, engine: "Engine", thread_id: str, moment: Moment) -> "Past":
        """The thread at a moment. Raises `SeqNotInLog`, `EventNotFound`, `ThreadNotFound`."""
        return cls(engine, thread_id, await seq_of(engine.store, thread_id, moment))

    async def _upto(self, moment: Moment | None) -> int:
        """The seq that is asked for: never one after this."""
        if moment is None:
            return self.seq
        return min(self.seq, await seq_of(self._engine.store, self.id, moment))

    # reading

    async def event(self) -> RecordedEvent | None:
        """The event at `seq`, the last that had happened; `None` before the first."""
        rows = await self._engine.reader.rows_at(self.id, {self.seq})
        return self._engine.reader.decode(self.id, rows[self.seq]) if self.seq in rows else None

    async def events(self, *, after: int = 0, upto: int | None = None) -> AsyncIterator[RecordedEvent]:
        """The log up to here."""
        last = self.seq if upto is None else min(upto, self.seq)
        async for event in self._engine.reader.events(self.id, after=max(0, after), upto=last):
            yield event

    async def latest(self, limit: int) -> list[RecordedEvent]:
        """The latest `limit` events up to here, oldest of them first."""
        return [event async for event in self.events(after=max(0, self.seq - limit))]

    async def info(self) -> ThreadInfo:
        """What the thread is, and where it stood. Its status is that of today."""
        state, event = await self.state(), await self.event()
        info = await super().info()
        return replace(
            info,
            events=self.seq,
            chunks=state.tally.chunks,
            tokens=state.tally.tokens,
            head_hash=event.hash if event is not None else "",
        )

    async def state(self, *, at: Moment | None = None) -> State:
        """The state as it was."""
        if at is not None:
            return await self._engine.reader.state_at(self.id, await self._upto(at))
        if self._at_seq is None:
            self._at_seq = await self._engine.reader.state_at(self.id, self.seq)
        return self._at_seq

    async def context(
        self,
        max_tokens: int | None = None,
        *,
        at: Moment | None = None,
        query: str | None = None,
        policy: ContextPolicy = DEFAULT_POLICY,
        recall_from: "Sequence[Thread]" = (),
    ) -> Context:
        """What a model would have seen next."""
        return await super().context(
            max_tokens, at=await self._upto(at), query=query, policy=policy, recall_from=recall_from
        )

    async def search(  # noqa: PLR0913 - what narrows a search, by keyword
        self,
        query: str,
        *,
        limit: int = 10,
        kinds: Sequence[str] = (),
        at: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
    ) -> Found:
        """What a search would have found. The first search of a thread makes its index, whenever it is asked."""
        upto = await self._upto(at)
        return await super().search(query, limit=limit, kinds=kinds, at=upto, since=since, until=until, explain=explain)

    async def view(self, projection: str, *, at: Moment | None = None) -> dict[str, object]:
        """The rows of a registered projection as they were. Raises `KeyError` for an unknown one."""
        return await super().view(projection, at=await self._upto(at))

    async def rows(self, projection: Projection[V], *, at: Moment | None = None) -> Rows[V]:
        """The rows of a projection as they were, folded from the log."""
        return await rows_at(projection, self._engine.reader, self.id, await self._upto(at))

    async def tail(self, projection: Projection[V], limit: int) -> list[tuple[str, V]]:
        """The last rows of a projection by key, in order."""
        return list((await self.rows(projection)).items())[-limit:] if limit else []

    async def measure(self, projection: Projection[V]) -> tuple[int, int]:
        """How many rows a projection had and how many bytes their JSON took."""
        encoded = (await self.rows(projection)).encoded()
        return len(encoded), sum(map(len, encoded.values()))

    async def report(self, *, at: int | None = None) -> "Report":
        """What the memory held, what was cached and what the agent received."""
        return await super().report(at=await self._upto(at))

    async def fork(
        self, at: int | None = None, *, thread_id: str = "", metadata: Mapping[str, str] | None = None
    ) -> Thread:
        """A thread that shares the past up to here and goes its own way."""
        return await super().fork(await self._upto(at), thread_id=thread_id, metadata=metadata)

    async def why(self, what: "str | Context") -> "Why":
        """What is behind a chunk or a context, as far as it was known then."""
        from memory_engine.replay.why import why

        return await why(self, what)

    # writing

    def _refuse(self, what: str) -> NoReturn:
        raise PastIsReadOnly(self.id, self.seq, what)

    async def dispatch(
        self,
        event: Event | NewEvent,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
    ) -> Receipt:
        """Raises `PastIsReadOnly`."""
        self._refuse("event")

    async def dispatch_all(self, events: Sequence[Event | NewEvent]) -> tuple[Receipt, ...]:
        """Raises `PastIsReadOnly`."""
        self._refuse("events")

    async def compact(self, chunk_ids: Collection[str] | None = None) -> CompactionReport:
        """Raises `PastIsReadOnly`."""
        self._refuse("compaction")

    async def undo_compaction(self, compaction: str = "", *, reason: str = "") -> Receipt:
        """Raises `PastIsReadOnly`."""
        self._refuse("undoing")

    async def redo_compaction(self, compaction: str = "", *, compactor: "Compactor | None" = None) -> CompactionReport:
        """Raises `PastIsReadOnly`."""
        self._refuse("compaction")

    async def rebuild(
        self, views: Collection[str] | None = None, *, search: bool | None = None, progress: Progress | None = None
    ) -> ThreadInfo:
        """Raises `PastIsReadOnly`."""
        self._refuse("rebuild")

    async def blocking_reason(self) -> BlockingReason | None:
        """Nothing waits in the past."""
        return None

    async def settle(self) -> None:
        """Nothing is under way in the past."""

    async def delivered(self) -> None:
        """Nothing is under way in the past."""

    async def _runtime(self) -> "ThreadRuntime":
        self._refuse("change")
