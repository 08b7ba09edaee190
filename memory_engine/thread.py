"""The handle to one thread: what users hold."""

from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.compaction.running import CompactionReport
from memory_engine.context.builder import Context, build_context
from memory_engine.context.policy import DEFAULT_POLICY, ContextPolicy
from memory_engine.context.recalling import Recall, recalled_context
from memory_engine.errors import (
    EventNotFound,
    IntegrityError,
    ThreadHasForks,
    ThreadNotFound,
    UnknownChunk,
)
from memory_engine.events.base import Event
from memory_engine.events.execution import ExecutionPause, ExecutionResume
from memory_engine.events.memory import MemoryForget, MemoryMarkCritical
from memory_engine.events.session import SessionEnded
from memory_engine.log import live_chunk
from memory_engine.moments import Moment, seq_of
from memory_engine.persistence import (
    ACTIVE,
    DELETED,
    PAUSED,
    ForkPoint,
    Head,
    ThreadFilter,
    check_record,
)
from memory_engine.projections.base import Projection, ReadableRows, Rows
from memory_engine.projections.refolding import rows_at
from memory_engine.queue import BlockingReason
from memory_engine.records import NewEvent, Receipt, RecordedEvent
from memory_engine.replay.rebuild import rebuild
from memory_engine.replay.verify import Progress, VerifyReport
from memory_engine.replayable import Replayable
from memory_engine.runtime import ThreadRuntime
from memory_engine.searchable import Searchable
from memory_engine.state import State
from memory_engine.thread_info import ThreadInfo

if TYPE_CHECKING:
    from memory_engine.engine import Engine
    from memory_engine.offloading import Opened
    from memory_engine.projections.conversation.view import Conversation
    from memory_engine.projections.flows import Flows
    from memory_engine.projections.layers.view import Memory
    from memory_engine.projections.promotion.view import Promotion
    from memory_engine.projections.reports import Report
    from memory_engine.projections.scratchpad import Scratchpad
    from memory_engine.projections.screen import Screen
    from memory_engine.projections.tool_cache import ToolCache

V = TypeVar("V")


class Thread(Searchable, Replayable):
    """One ordered log with its own queue and state. A handle costs nothing and may be made at any time."""

    def __init__(self, engine: "Engine", thread_id: str) -> None:
        self._engine = engine
        self.id = thread_id

    def __repr__(self) -> str:
        return f"Thread({self.id!r})"

    @property
    def engine(self) -> "Engine":
        """The engine that this handle belongs to."""
        return self._engine

    async def _runtime(self) -> ThreadRuntime:
        return self._engine.directory.get(self.id) or await self._engine.directory.open(self.id)

    async def _followed(self) -> ThreadRuntime:
        """The thread as its readers see it: with what other processes have committed."""
        runtime = await self._runtime()
        await runtime.follow()
        return runtime

    # events

    def dispatch(
        self,
        event: Event | NewEvent,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
    ) -> Coroutine[object, object, Receipt]:
        """Append one event: the very same call as `Engine.dispatch`, to be awaited."""
        return self._engine.dispatch(
            self.id,
            event,
            event_id=event_id,
            occurred_at=occurred_at,
            causation_id=causation_id,
            correlation_id=correlation_id,
        )

    async def dispatch_all(self, events: Sequence[Event | NewEvent]) -> tuple[Receipt, ...]:
        """Append events in order, all or none."""
        return await self._engine.dispatch_all(self.id, events)

    async def events(self, *, after: int = 0, upto: int | None = None) -> AsyncIterator[RecordedEvent]:
        """The log: events with `after` < seq <= `upto` (default: the head), in order."""
        head = await self._engine.store.head(self.id)
        last = head.seq if upto is None else min(upto, head.seq)
        async for event in self._engine.reader.events(self.id, after=max(0, after), upto=last):
            yield event

    async def latest(self, limit: int) -> list[RecordedEvent]:
        """The latest `limit` events, oldest of them first."""
        head = await self._engine.store.head(self.id)
        return [event async for event in self.events(after=max(0, head.seq - limit))]

    # state and context

    async def info(self) -> ThreadInfo:
        """What the thread is and where it stands."""
        found = await self._engine.store.threads(ThreadFilter(id=self.id))
        if not found:
            raise ThreadNotFound(self.id)
        return ThreadInfo.of(*found[0])

    async def state(self, *, at: Moment | None = None) -> State:
        """The state after the last event, or as of an earlier moment (see `at`).

        Commits of other processes are seen within `EngineConfig.follow_s`. Raises `SeqNotInLog`, `EventNotFound`.
        """
        if at is None:
            return (await self._followed()).state
        return await self._engine.reader.state_at(self.id, await seq_of(self._engine.store, self.id, at))

    async def chunk(self, chunk_id: str) -> Chunk:
        """A chunk by id, also one that a compaction covers. Raises `UnknownChunk`."""
        return (await self._engine.reader.chunks(self.id, [chunk_id]))[chunk_id]

    async def originals(self, chunk_id: str) -> list[Chunk]:
        """What a summary stands for: the originals, through any number of compactions, in order."""
        chunk = await self.chunk(chunk_id)
        return await self._engine.reader.originals(self.id, chunk)

    async def context(
        self,
        max_tokens: int | None = None,
        *,
        at: Moment | None = None,
        query: str | None = None,
        policy: ContextPolicy = DEFAULT_POLICY,
        recall_from: "Sequence[Thread]" = (),
    ) -> Context:
        """What the model is to see next, within `max_tokens` (default: everything in the state).

        Over the hard limit it waits for a compaction first. Raises `ContextBudgetError`
        where what must be in does not fit. `at` gives the context as of an earlier moment.

        With a `query`, what the log says about it is recalled too, in one block before the newest turn; `policy`
        divides the budget, and is not used without one. Raises `InvalidSearch` unless the threads in `recall_from`
        are this one's: of its tenant, its user or its agent.
        """
        if at is not None:
            at = await seq_of(self._engine.store, self.id, at)
            state = await self.state(at=at)
        else:
            runtime = await self._followed()
            await self._engine.compaction.before_context(runtime)
            state = runtime.state
        if query is not None:
            recall = Recall(query=query, max_tokens=max_tokens, at=at, policy=policy, others=recall_from)
            return await recalled_context(self, state, recall)
        parts = self._engine.parts
        return build_context(
            state, thread_id=self.id, max_tokens=max_tokens, renderers=parts.renderers, counter=parts.counter
        )

    # views

    async def view(self, projection: str, *, at: Moment | None = None) -> dict[str, object]:
        """The rows of a registered projection, up to date with the head or as of `at`.

        Raises `KeyError` for an unknown one.
        """
        known = {p.name: p for p in self._engine.parts.projections}
        if projection not in known:
            raise KeyError(f"no projection {projection!r} is registered; there are {', '.join(known)}")
        return dict((await self.rows(known[projection], at=at)).items())

    async def rows(self, projection: Projection[V], *, at: Moment | None = None) -> ReadableRows[V]:
        """The rows of a projection: in memory once they were read, or, with `at`, folded from the log.

        They follow the thread: read what you need of them before you await anything else.
        """
        if at is not None:
            return await rows_at(
                projection, self._engine.reader, self.id, await seq_of(self._engine.store, self.id, at)
            )
        if projection.mode == "async":
            return cast("Rows[V]", await self._engine.worker.catch_up(cast("Projection[object]", projection), self.id))
        return await (await self._followed()).rows(projection)

    async def tail(self, projection: Projection[V], limit: int) -> list[tuple[str, V]]:
        """The last rows of a projection by key, in order, straight from the store."""
        await (await self._followed()).current(projection)
        rows = await self._engine.store.last_rows(projection.name, projection.version, self.id, limit)
        decoder = msgspec.json.Decoder(projection.row)
        return [(key, decoder.decode(value)) for key, value in rows]

    async def measure(self, projection: Projection[V]) -> tuple[int, int]:
        """How many rows a projection has and how many bytes their JSON takes, without reading them."""
        await (await self._followed()).current(projection)
        return await self._engine.store.measure_rows(projection.name, projection.version, self.id)

    # memory

    async def mark_critical(self, *chunk_ids: str) -> Receipt:
        """These chunks are never compacted from here on."""
        return await self.dispatch(MemoryMarkCritical(chunk_ids=chunk_ids))

    async def forget(
        self, *, chunk_ids: Sequence[str] = (), event_ids: Sequence[str] = (), reason: str = ""
    ) -> Receipt:
        """Hide chunks, and all that came of events, from every view; the log keeps them.

        Facts that were drawn from them for a user, a tenant or an agent are forgotten there too.
        Raises `EventNotFound`, `UnknownChunk` for an id that the log does not hold. What a thread of those raises
        (`ThreadClosed`: it is archived) is raised at the end, when all is forgotten here and in the others.
        """
        found = {stored.id: stored.seq for stored in await self._engine.store.find(self.id, list(event_ids))}
        missing = [event_id for event_id in event_ids if event_id not in found]
        if missing:
            raise EventNotFound(self.id, missing[0])
        reader = self._engine.reader
        await reader.chunks(self.id, list(chunk_ids))
        heads = {int(chunk_id.partition(".")[0]) for chunk_id in chunk_ids}
        told = {*found, *await reader.ids_at(self.id, heads)}
        versions, summaries = await reader.made_of(self.id, chunk_ids, found.values(), told)
        chunk_ids = tuple(dict.fromkeys((*chunk_ids, *versions)))
        brought = await reader.ids_at(self.id, {int(chunk_id.partition(".")[0]) for chunk_id in chunk_ids})
        reach, waiting = await self._engine.relay.reach(self.id, {*found, *brought})
        seqs = tuple(sorted({*found.values(), *waiting}))
        event = MemoryForget(
            chunk_ids=chunk_ids,
            seqs=seqs,
            reason=reason,
            summaries=tuple(summaries),
            call_ids=await reader.call_ids(self.id, chunk_ids, seqs),
            reach=reach,
        )
        receipt = await self.dispatch(event)
        await self._engine.relay.deliver(self.id)
        return receipt

    async def delivered(self) -> None:
        """Wait until the facts that this thread has for others (a promotion, a playbook) have arrived there."""
        await self._engine.relay.deliver(self.id)

    async def offload(self, *, min_chars: int = 20_000, keep_chars: int = 400) -> Receipt | None:
        """Shorten chunks of `min_chars` characters and more to their beginning and a reference.

        The log keeps them whole: `open` reads on. `None` if there are none.
        """
        from memory_engine.offloading import offload

        return await offload(self, min_chars=min_chars, keep_chars=keep_chars)

    async def open(self, reference: str, *, start: int = 0, chars: int = 4_000) -> "Opened":
        """A piece of an off-loaded chunk's text (or any chunk's), by id. Raises `UnknownChunk`."""
        from memory_engine.offloading import open_reference

        return await open_reference(self, reference, start=start, chars=chars)

    async def report(self, *, at: int | None = None) -> "Report":
        """What the memory holds, what is cached and what the agent receives, for people. `at`: as of an earlier seq."""
        from memory_engine.projections.reports import memory_report

        return await memory_report(self, at=at)

    @property
    def scratchpad(self) -> "Scratchpad":
        """What flows found out."""
        from memory_engine.projections.scratchpad import Scratchpad

        return Scratchpad(self)

    @property
    def promotion(self) -> "Promotion":
        """From the scratchpad to preferences and `agent.md`."""
        from memory_engine.projections.promotion.view import Promotion

        return Promotion(self)

    @property
    def flows(self) -> "Flows":
        """Flows that ran, and the playbooks that come of them."""
        from memory_engine.projections.flows import Flows

        return Flows(self)

    @property
    def conversation(self) -> "Conversation":
        """Exchanges, summary and the cycle under way."""
        from memory_engine.projections.conversation.view import Conversation

        return Conversation(self)

    @property
    def tool_cache(self) -> "ToolCache":
        """Results of tools that later exchanges may use."""
        from memory_engine.projections.tool_cache import ToolCache

        return ToolCache(self)

    @property
    def screen(self) -> "Screen":
        """What the person looks at."""
        from memory_engine.projections.screen import Screen

        return Screen(self)

    @property
    def memory(self) -> "Memory":
        """Working, episodic, semantic and procedural memory."""
        from memory_engine.projections.layers.view import Memory

        return Memory(self)

    # queue

    async def is_blocked(self) -> bool:
        """Whether events wait."""
        return await self.blocking_reason() is not None

    async def blocking_reason(self) -> BlockingReason | None:
        """Why events wait, if they do."""
        return (await self._runtime()).queue.blocking_reason

    async def pause(self, reason: str = "") -> Receipt:
        """Let events wait from here on, across processes and restarts, until `resume`."""
        runtime = await self._runtime()
        event = ExecutionPause(content=reason)
        if runtime.head.status != PAUSED:
            return await self.dispatch(event)
        request = self._engine.request([event], system=True)  # it would wait for its own end
        return (await runtime.submit(request))[0]

    async def resume(self, reason: str = "") -> Receipt:
        """Go on: what waited is taken in order."""
        return await self.dispatch(ExecutionResume(content=reason))

    # compaction

    async def compact(self, chunk_ids: Collection[str] | None = None) -> CompactionReport:
        """Compact all compactable chunks, or the given ones (with what must stay with them).

        Raises `NothingToCompact`, or `CompactorFailed` with the originals in place.
        """
        runtime = await self._runtime()
        if chunk_ids is not None:
            for chunk_id in chunk_ids:
                if runtime.state.get(chunk_id) is None:
                    raise UnknownChunk("compact", chunk_id)
        return await self._engine.compaction.compact(runtime, chunk_ids)

    async def settle(self) -> None:
        """Wait for a compaction under way."""
        await self._engine.compaction.settle(await self._runtime())

    # life

    async def fork(
        self, at: int | None = None, *, thread_id: str = "", metadata: Mapping[str, str] | None = None
    ) -> "Thread":
        """A thread that shares this one's past up to `at` (default: the head) and goes its own way from there."""
        self._engine.check_writable("a fork")
        loaded = await self._engine.store.load(self.id)
        seq = loaded.head.seq if at is None else at
        state = await self.state(at=seq)
        hash_ = b""
        for stored in await self._engine.store.read(self.id, after=max(0, seq - 1), upto=seq, limit=1):
            hash_ = stored.hash
        record = msgspec.structs.replace(
            loaded.record,
            id=thread_id or self._engine.new_id(),
            created_at_us=self._engine.now_us(),
            metadata={**loaded.record.metadata, **(metadata or {})},
            forked_from=ForkPoint(self.id, seq),
        )
        check_record(record)
        head = Head(
            seq=seq,
            hash=hash_,
            status=ACTIVE,
            chunks=state.tally.chunks,
            tokens=state.tally.tokens,
            marks={name: min(mark, seq) for name, mark in loaded.head.marks.items()},
        )
        live = [row for placed in state.placed() if (row := live_chunk(placed)) is not None]
        await self._engine.store.create(record, head, live)
        return Thread(self._engine, record.id)

    async def end_session(self, reason: str = "") -> Receipt:
        """End the session: EPHEMERAL chunks go."""
        return await self.dispatch(SessionEnded(content=reason))

    async def archive(self) -> None:
        """Take no more events, those that wait included. The log stays readable."""
        self._engine.check_writable("archiving")
        await self.settle()
        await (await self._runtime()).archive()

    async def delete(self) -> None:
        """Destroy the log and the state. The id stays taken. Raises `ThreadHasForks`."""
        self._engine.check_writable("deleting")
        forks = await self._engine.store.forks(self.id)
        if forks:
            raise ThreadHasForks(self.id, tuple(forks))
        runtime = await self._runtime()
        await self.settle()
        await runtime.idle()
        await self._engine.store.delete(self.id)
        await self._engine.recall.forget_thread(self.id)
        self._engine.directory.drop(self.id)
        runtime.end(DELETED)

    # replay

    async def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Replay the log: hashes, operations, state and projections must come out the same. Writes nothing.

        Where the log itself is broken (a gap, a hash), the thread takes no events in this process any more.
        """
        report = await self._engine.verifier.verify(self.id, progress)
        broken = report.divergence
        if broken is not None and broken.kind in ("gap", "hash"):
            self._engine.directory.refuse(self.id, IntegrityError(self.id, broken.seq, str(broken)))
        return report

    async def rebuild(
        self, views: Collection[str] | None = None, *, search: bool | None = None, progress: Progress | None = None
    ) -> ThreadInfo:
        """Make what derives from the log again, beside the old, and put it in its place in one commit.

        The state's rows, every view and the search index (if there is one); with `views` only the rows of those, and
        the index where `search` says so. Whoever reads meanwhile sees the old or the new, and events are taken; where
        this raises or dies, the old stands. `progress` is called with the number of events read.

        Raises `UnknownView`, `IntegrityError` where the recorded operations do not hold together, and
        `ContentionError` where other processes write without pause.
        """
        await rebuild(self._engine, self.id, views, search=search, progress=progress)
        return await self.info()
