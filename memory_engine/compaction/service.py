"""Starts compactions: when thresholds say so, when someone asks, and cleans up after those that died."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Protocol

from memory_engine.chunks import Chunk
from memory_engine.compaction.base import Compactor
from memory_engine.compaction.planning import Plan, is_due, is_overdue, plan_auto, plan_manual
from memory_engine.compaction.running import CompactionReport, Run, Trigger, owner_is_gone
from memory_engine.errors import (
    CompactionError,
    CompactorFailed,
    EngineClosed,
    MemoryEngineError,
    NothingToCompact,
)
from memory_engine.events.base import Event
from memory_engine.events.compaction import CompactionAbandoned, CompactionStarted
from memory_engine.persistence import CompactionPolicy, Store
from memory_engine.queue import BlockingReason, Request
from memory_engine.reading import LogReader
from memory_engine.records import NewEvent, Receipt
from memory_engine.runtime import ThreadRuntime

_log = logging.getLogger("memory_engine.compaction")


class Services(Protocol):
    """What the service needs of its engine."""

    store: Store
    reader: LogReader
    closing: bool

    def now_us(self) -> int:
        """The time."""
        ...

    def request(self, events: Sequence[Event | NewEvent], *, system: bool = False) -> Request:
        """Encode events."""
        ...

    def spawn(self, work: Coroutine[object, object, None], *, until_close: bool = False) -> asyncio.Task[None]:
        """Run in a task that the engine owns, and that ends, or is ended, with it."""
        ...

    def new_id(self) -> str:
        """A fresh id."""
        ...


class CompactionService:
    """Decides when to compact which thread with which compactor. One compaction a thread at a time."""

    def __init__(
        self,
        services: Services,
        policy: CompactionPolicy,
        compactors: Sequence[tuple[Compactor, int]],
        fallback: Compactor,
    ) -> None:
        self._services = services
        self._policy = policy
        self._compactors = [c for c, _ in sorted(compactors, key=lambda entry: -entry[1])]
        self._fallback = fallback
        self._running: dict[str, asyncio.Future[CompactionReport]] = {}

    def register(self, compactor: Compactor) -> None:
        """Ask this compactor before all others."""
        self._compactors.insert(0, compactor)

    def policy_of(self, runtime: ThreadRuntime) -> CompactionPolicy:
        """The thread's own policy, or the engine's."""
        return runtime.record.policy or self._policy

    def is_running(self, thread_id: str) -> bool:
        """Whether a compaction of the thread is under way in this process."""
        return thread_id in self._running

    def after_commit(self, runtime: ThreadRuntime) -> None:
        """Start a compaction in the background if one is due; the queue is blocked from this moment."""
        policy = self.policy_of(runtime)
        tally = runtime.state.tally
        if not is_due(tally, policy) or tally.compactable < runtime.compaction_backoff or self.is_running(runtime.id):
            return
        if self._services.closing:
            return
        plan = plan_auto(runtime.state, policy, runtime.stiff)
        if not plan:
            runtime.compaction_backoff = tally.compactable + max(1, policy.threshold // 4)
            return
        self._start(runtime, "auto", None)

    async def compact(
        self, runtime: ThreadRuntime, chunk_ids: Collection[str] | None, trigger: Trigger = "manual"
    ) -> CompactionReport:
        """Compact now, after any compaction under way. A cancelled caller does not stop it.

        Raises `NothingToCompact`, or `CompactorFailed` (recorded in the log).
        """
        await self.settle(runtime)
        if self._services.closing:
            raise EngineClosed
        return await asyncio.shield(self._start(runtime, trigger, chunk_ids))

    async def before_context(self, runtime: ThreadRuntime) -> None:
        """Over the hard limit, wait for a compaction; where the compactor fails, the embedded one is used."""
        policy = self.policy_of(runtime)
        if is_overdue(runtime.state.tally, policy):
            await self.settle(runtime)  # the one under way may be enough
        if not is_overdue(runtime.state.tally, policy):
            return
        try:
            await self.compact(runtime, None, "hard")
        except NothingToCompact:
            return
        except CompactionError as error:
            _log.warning("thread %r: over the hard limit and not compacted: %s", runtime.id, error)

    async def settle(self, runtime: ThreadRuntime) -> None:
        """Wait until no compaction of the thread is under way; how it ended is in the log."""
        while runtime.id in self._running:
            await asyncio.wait([self._running[runtime.id]])

    async def recover(self, runtime: ThreadRuntime) -> None:
        """A compaction that was started and never ended: if nobody can end it, the log says so. No retry."""
        seq = runtime.head.open_compaction
        if not seq or self.is_running(runtime.id):
            return
        for stored in await self._services.store.read(runtime.id, after=seq - 1, upto=seq, limit=1):
            event = self._services.reader.decode(runtime.id, stored).event
            if not isinstance(event, CompactionStarted):
                return
            late = self._services.now_us() > event.deadline_us
            if late or owner_is_gone(event.owner):
                reason = "past its deadline" if late else "its process is gone"
                try:
                    await self._append(runtime, CompactionAbandoned(compaction_id=event.compaction_id, reason=reason))
                except (
                    MemoryEngineError
                ) as error:  # the thread can be read all the same; the next to open it tries again
                    _log.warning("thread %r: an unfinished compaction cannot be recorded: %s", runtime.id, error)

    def _start(
        self, runtime: ThreadRuntime, trigger: Trigger, chunk_ids: Collection[str] | None
    ) -> "asyncio.Future[CompactionReport]":
        future: asyncio.Future[CompactionReport] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_observed)
        self._running[runtime.id] = future
        runtime.queue.block(BlockingReason.COMPACTING)
        self._services.spawn(self._run(runtime, trigger, chunk_ids, future), until_close=True)
        return future

    async def _run(
        self,
        runtime: ThreadRuntime,
        trigger: Trigger,
        chunk_ids: Collection[str] | None,
        future: "asyncio.Future[CompactionReport]",
    ) -> None:
        """One compaction from block to unblock. It ends the future in every case."""
        try:
            await runtime.idle()
            report = await self._attempt(runtime, trigger, chunk_ids)
            runtime.compaction_backoff = runtime.compaction_failures = 0
            _end(future, report)
        except BaseException as error:  # whatever it is, nobody may wait for ever
            if not isinstance(error, NothingToCompact):
                self._back_off(runtime)
            _end(future, error)
            if not isinstance(error, MemoryEngineError):
                raise
        finally:
            del self._running[runtime.id]
            runtime.unblock(BlockingReason.COMPACTING)

    async def _attempt(
        self, runtime: ThreadRuntime, trigger: Trigger, chunk_ids: Collection[str] | None
    ) -> CompactionReport:
        plan = self._plan(runtime, trigger, chunk_ids)
        if not plan:
            raise NothingToCompact(runtime.id, "every chunk is critical, open, too new, or cannot get shorter")
        try:
            return await self._execute(runtime, trigger, plan, self._compactors)
        except CompactorFailed:
            if not is_overdue(runtime.state.tally, self.policy_of(runtime)):
                raise
            return await self._execute(runtime, "hard", plan, [self._fallback])

    def _plan(self, runtime: ThreadRuntime, trigger: Trigger, chunk_ids: Collection[str] | None) -> Plan:
        policy = self.policy_of(runtime)
        if trigger == "manual":
            return plan_manual(runtime.state, policy, chunk_ids)
        return plan_auto(runtime.state, policy, runtime.stiff)

    async def _execute(
        self, runtime: ThreadRuntime, trigger: Trigger, plan: Plan, compactors: Sequence[Compactor]
    ) -> CompactionReport:
        async def append(event: Event) -> Receipt:
            return await self._append(runtime, event)

        run = Run(
            thread_id=runtime.id,
            compaction_id=self._services.new_id(),
            state=runtime.state,
            plan=plan,
            trigger=trigger,
            pieces=self._assign(runtime, plan, compactors),
            policy=self.policy_of(runtime),
            originals=_Originals(self._services.reader, runtime.id),
            append=append,
            now_us=self._services.now_us(),
            stiff=runtime.stiff,
        )
        return await run.execute()

    def _assign(
        self, runtime: ThreadRuntime, plan: Plan, compactors: Sequence[Compactor]
    ) -> tuple[tuple[Compactor, tuple[str, ...]], ...]:
        """Give each chunk to the first compactor that can take it; a batch is split by compactor."""
        pieces = [(self._taker(runtime, chunk_id, compactors), (chunk_id,)) for chunk_id in plan.singles]
        batches: dict[int, tuple[Compactor, list[str]]] = {}
        for chunk_id in plan.batch:
            taker = self._taker(runtime, chunk_id, compactors)
            batches.setdefault(id(taker), (taker, []))[1].append(chunk_id)
        return (*pieces, *((taker, tuple(ids)) for taker, ids in batches.values()))

    def _taker(self, runtime: ThreadRuntime, chunk_id: str, compactors: Sequence[Compactor]) -> Compactor:
        chunk = runtime.state.get(chunk_id)
        for compactor in compactors:
            if chunk is not None and _can_compact(compactor, chunk):
                return compactor
        return self._fallback

    async def _append(self, runtime: ThreadRuntime, event: Event) -> Receipt:
        """Commit an event of the protocol itself, past the block, to its end even where the caller is cancelled."""
        request = self._services.request([event], system=True)
        task = asyncio.ensure_future(runtime.submit(request))
        try:
            return (await asyncio.shield(task))[0]
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    def _back_off(self, runtime: ThreadRuntime) -> None:
        """After a failure, wait until more has come: half a threshold, then twice as much each time."""
        runtime.compaction_failures = min(runtime.compaction_failures + 1, 6)
        wait = max(1, self.policy_of(runtime).threshold // 4) * 2**runtime.compaction_failures
        runtime.compaction_backoff = runtime.state.tally.compactable + wait


class _Originals:
    """The log of one thread, as a compaction reads it."""

    def __init__(self, reader: LogReader, thread_id: str) -> None:
        self._reader = reader
        self._thread_id = thread_id

    async def covered_by(self, summary: Chunk, tokens_max: int) -> Sequence[Chunk] | None:
        return await self._reader.covered_by(self._thread_id, summary, tokens_max)

    async def times(self, chunks: Sequence[Chunk]) -> Mapping[str, str]:
        return await self._reader.times(self._thread_id, chunks)


def _can_compact(compactor: Compactor, chunk: Chunk) -> bool:
    try:
        return compactor.can_compact((chunk,))
    except Exception:  # the boundary to user code: who cannot even say so is passed over
        _log.exception("compactor %s cannot say whether it can take chunk %s", compactor.name, chunk.id)
        return False


def _end(future: "asyncio.Future[CompactionReport]", outcome: CompactionReport | BaseException) -> None:
    if future.done():
        return
    if isinstance(outcome, CompactionReport):
        future.set_result(outcome)
    elif isinstance(outcome, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(outcome)


def _observed(future: "asyncio.Future[CompactionReport]") -> None:
    """A background compaction's failure is in the log; nobody needs to await it."""
    if not future.cancelled():
        future.exception()
