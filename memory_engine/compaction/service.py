"""Starts compactions when thresholds or callers ask for them, and cleans up after processes that died."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec

from memory_engine.compaction.assignment import Afresh, assigned, checked_compactor, declared, grouped, refused
from memory_engine.compaction.base import Compactor, works_ahead
from memory_engine.compaction.failures import SUPERSEDED, Failures
from memory_engine.compaction.history import LogOriginals
from memory_engine.compaction.plan import Plan, is_due, is_flooded, is_overdue, is_pressing, plan_auto, plan_manual
from memory_engine.compaction.protocol import CompactionReport, CompactionRun, Trigger, owner_is_gone
from memory_engine.core.aside import aside
from memory_engine.core.cancellation import finished, observed
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionStarted,
    CompactionUndone,
    CompactorStoodIn,
)
from memory_engine.core.loops import OfLoop
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.core.slices import Pace
from memory_engine.core.state import State, Tally
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors import (
    CompactionError,
    CompactionNotLive,
    CompactorFailed,
    ContentionError,
    EngineClosed,
    IdempotencyConflict,
    MemoryEngineError,
    NothingToCompact,
    ReducerError,
    StaleEvent,
)
from memory_engine.runtime.commit import Reduced
from memory_engine.runtime.correlation import Links, linked
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.thread_runtime import ThreadRuntime

_log = logging.getLogger("memory_engine.compaction")
LEASE_POLL_S = 0.05
"""Seconds between looks of a waiting compaction at whether another process has ended its own."""
NOTHING_LEFT = "every chunk is critical, open, being worked on, too new, or cannot get shorter"

T = TypeVar("T")


class Again(msgspec.Struct, frozen=True):
    """The chunks to compact once more. `afresh` maps a summary to the originals that take the place of its lines."""

    plan: Plan
    afresh: Afresh = {}


class CompactionService:
    """Decides when to compact which thread with which compactor. One compaction a thread at a time."""

    def __init__(
        self,
        kernel: Kernel,
        compactors: Sequence[tuple[Compactor, int]],
        fallback: Compactor,
    ) -> None:
        self._kernel = kernel
        self._policy = kernel.config.compaction
        self._compactors = [c for c, _ in sorted(compactors, key=lambda entry: -entry[1])]
        self.fallback = fallback
        self._running: dict[str, asyncio.Future[None]] = {}
        self._pace = OfLoop(Pace)
        self._undone: WeakKeyDictionary[ThreadRuntime, int] = WeakKeyDictionary()
        self._failures: WeakKeyDictionary[ThreadRuntime, Failures] = WeakKeyDictionary()

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        """The compactors in the order in which they are asked."""
        return tuple(self._compactors)

    def register(self, compactor: Compactor) -> None:
        """Add a compactor that is asked before all others. Raises `InvalidCompactor`."""
        self._compactors.insert(0, checked_compactor(compactor))

    def policy_of(self, runtime: ThreadRuntime) -> CompactionPolicy:
        """The thread's own policy, or the engine's, its limits as numbers for the window of the thread."""
        return (runtime.record.policy or self._policy).applied(runtime.window)

    def is_running(self, thread_id: str) -> bool:
        """Whether a compaction of the thread is under way in this process."""
        return thread_id in self._running

    def after_commit(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        """Start a compaction in the background if one is due; by default the queue is blocked from this moment.

        The last event of the commit is what caused it.
        """
        self._pace.here.committed()
        policy = self.policy_of(runtime)
        tally = runtime.state.tally
        if not is_due(tally, policy) or self._kernel.tasks.closing:
            return
        if self.is_running(runtime.id):
            is_too_much = is_flooded if self._works_ahead("auto") else is_overdue
            if is_too_much(tally, policy):
                self._hold(runtime)
            return
        self._spare_restored(runtime)
        if tally.compactable < runtime.compaction_backoff:
            return
        plan = plan_auto(runtime.state, policy, runtime.incompressible)
        if not plan:
            runtime.compaction_backoff = tally.compactable + max(1, policy.threshold // 4)
            return
        last = reduced[-1].stored if reduced else None
        with linked(Links() if last is None else Links(last.id, last.correlation_id)):
            self._start(runtime, "auto", None)

    def _hold(self, runtime: ThreadRuntime) -> None:
        """Let events wait until the compaction under way has ended, which hurries."""
        if runtime.queue.blocking_reason is None:
            runtime.queue.block(BlockingReason.COMPACTING)
            self._kernel.tasks.spawn(self.settle(runtime))

    def _spare_restored(self, runtime: ThreadRuntime) -> None:
        """Leave chunks that an undo put back until half a threshold has come, whoever undid it and when."""
        mark = runtime.head.marks.get(CompactionUndone.event_type, 0)
        if mark <= self._undone.get(runtime, 0):
            return
        self._undone[runtime] = mark
        until_then = [chunk for chunk in runtime.state.everything() if chunk.is_compactable and chunk.seq <= mark]
        if any(chunk.seq == mark for chunk in until_then):
            wait = max(1, self.policy_of(runtime).threshold // 2)
            runtime.compaction_backoff = max(runtime.compaction_backoff, len(until_then) + wait)

    async def compact(
        self, runtime: ThreadRuntime, chunk_ids: Collection[str] | None, trigger: Trigger = "manual"
    ) -> CompactionReport:
        """Compact now, after any compaction under way. A cancelled caller does not stop it.

        Raises `NothingToCompact`, or `CompactorFailed` (recorded in the log).
        """
        await self._turn(runtime)
        return await asyncio.shield(self._start(runtime, trigger, chunk_ids))

    async def redo(
        self, runtime: ThreadRuntime, again: Callable[[], Awaitable[Again]], compactor: Compactor | None
    ) -> CompactionReport:
        """Compact what `again` finds, with `compactor` alone if it is given, after any compaction under way.

        Raises what `again` raises, `NothingToCompact`, `CompactorFailed`. A cancelled caller does not stop it.
        """
        await self._turn(runtime)
        work = lambda: self._compaction(runtime, lambda: self._again(runtime, again, compactor))  # noqa: E731
        return await asyncio.shield(self._alone(runtime, work))  # blocked while it reads what there is to redo

    async def commit(self, runtime: ThreadRuntime, make: Callable[[], Awaitable[NewEvent]]) -> Receipt:
        """Commit an event that `make` derives from the current state, after any compaction under way.

        No other event of this process comes in between; where another process writes, the event is made anew.
        Raises what `make` raises, and `ContentionError` where others write without pause. A cancelled caller does
        not stop it.
        """
        await self._turn(runtime)
        return await asyncio.shield(self._alone(runtime, lambda: self._commit(runtime, make)))

    async def _commit(self, runtime: ThreadRuntime, make: Callable[[], Awaitable[NewEvent]]) -> Receipt:
        tries = self._kernel.config.commit_tries_max
        for _ in range(tries):
            await self._look(runtime)
            try:
                return await self._append(runtime, [await make()])
            except IdempotencyConflict:  # another process did the same with other text
                continue
            except ReducerError as error:
                if not isinstance(error.__cause__, StaleEvent):
                    raise
        raise ContentionError(runtime.id, tries)

    async def _look(self, runtime: ThreadRuntime) -> None:
        """See what other processes have committed."""
        head = await self._kernel.store.head(runtime.id)
        if (head.seq, head.epoch) != (runtime.head.seq, runtime.head.epoch):
            await runtime.exclusively(runtime.catch_up)

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
        with self._pace.here.awaited():
            while runtime.id in self._running:
                await asyncio.wait([self._running[runtime.id]])

    async def _turn(self, runtime: ThreadRuntime) -> None:
        await self.settle(runtime)
        if self._kernel.tasks.closing:
            raise EngineClosed

    async def recover(self, runtime: ThreadRuntime) -> None:
        """Record a compaction that was started and never ended as abandoned, if nobody can end it. No retry."""
        if not runtime.head.open_compaction or self.is_running(runtime.id):
            return
        async with self._leased(runtime, wait_s=0) as is_ours:
            await self._look(runtime)  # it may have ended since, and given the thread back
            await self._close(runtime, is_ours)

    async def _close(self, runtime: ThreadRuntime, is_ours: bool | None) -> None:
        """End what was left open: whoever has the lease knows that nobody else is at it."""
        seq = runtime.head.open_compaction
        for stored in await self._kernel.store.read(runtime.id, after=seq - 1, upto=seq, limit=1) if seq else ():
            event = self._kernel.reader.decode(runtime.id, stored).event
            if not isinstance(event, CompactionStarted):
                return
            late = self._kernel.now_us() > event.deadline_us
            if late or is_ours or (is_ours is None and owner_is_gone(event.owner)):
                reason = "past its deadline" if late else "its process is gone"
                try:
                    with linked(Links(stored.id, stored.correlation_id)):
                        abandoned = CompactionAbandoned(compaction_id=event.compaction_id, reason=reason)
                        await self._append(runtime, [abandoned])
                except (
                    MemoryEngineError
                ) as error:  # the thread can be read all the same; the next to open it tries again
                    _log.warning("thread %r: an unfinished compaction cannot be recorded: %s", runtime.id, error)

    @asynccontextmanager
    async def _leased(self, runtime: ThreadRuntime, *, wait_s: float) -> AsyncIterator[bool | None]:
        """Keep other processes from compacting the thread. Gives whether they can be kept from it.

        One that does not give the thread back within `wait_s` is stuck: nobody waits for it longer.
        """
        store, until = self._kernel.store, asyncio.get_running_loop().time() + wait_s
        while (  # noqa: ASYNC110 - another process has it, and none can tell this one
            is_ours := await store.lease(runtime.id)
        ) is False and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LEASE_POLL_S)
        try:
            yield is_ours
        finally:
            if is_ours:
                await store.release(runtime.id)

    def _start(
        self, runtime: ThreadRuntime, trigger: Trigger, chunk_ids: Collection[str] | None
    ) -> "asyncio.Future[CompactionReport]":
        ahead = self._works_ahead(trigger)

        async def work() -> CompactionReport:
            pace, presses = self._pace.here, lambda: is_pressing(runtime.state.tally, self.policy_of(runtime))
            if ahead:
                await pace.quiet(presses)
            async with pace.after_others(presses) if ahead else nullcontext():
                return await self._compaction(runtime, lambda: self._attempt(runtime, trigger, chunk_ids), trigger)

        is_whole = self.policy_of(runtime).blocking == "whole"
        return self._alone(runtime, work, is_blocked=is_whole and not ahead)

    def _works_ahead(self, trigger: Trigger) -> bool:
        """Whether a compaction has its result before it starts, once there is time: nobody waits for it."""
        return trigger == "auto" and all(map(works_ahead, (*self._compactors, self.fallback)))

    async def _compaction(
        self, runtime: ThreadRuntime, attempt: Callable[[], Awaitable[CompactionReport]], trigger: Trigger = "manual"
    ) -> CompactionReport:
        """One compaction, by one process; after one that failed, the next that is due waits."""
        policy = self.policy_of(runtime)
        try:
            async with self._leased(runtime, wait_s=0 if trigger == "auto" else policy.deadline_s) as is_ours:
                if trigger == "auto" and is_ours is False:
                    runtime.compaction_backoff = runtime.state.tally.compactable + max(1, policy.threshold // 4)
                    raise NothingToCompact(runtime.id, "another process is compacting it")
                await self._look(runtime)
                await self._close(runtime, is_ours)
                if not _is_needed(runtime.state.tally, policy, trigger):
                    raise NothingToCompact(runtime.id, "another process has compacted it")
                with self._kernel.span("compaction", {"thread": runtime.id, "trigger": trigger}) as span:
                    report = await attempt()
                    tokens = {"before": report.tokens_before, "after": report.tokens_after}
                    span.say({"compactor": report.compactor, **tokens})
        except (NothingToCompact, CompactionNotLive):
            raise
        except BaseException as error:  # every error goes on to the caller
            self._back_off(runtime, error)
            raise
        runtime.compaction_backoff = runtime.compaction_failures = 0
        return report

    def _alone(
        self, runtime: ThreadRuntime, work: Callable[[], Awaitable[T]], *, is_blocked: bool = True
    ) -> "asyncio.Future[T]":
        """Run work that no other compaction of the thread may cross, and no event where the queue is blocked.

        It is blocked from this moment until the work is done, or lets events go on.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(observed)  # its failure is in the log
        self._running[runtime.id] = loop.create_future()
        if is_blocked:
            runtime.queue.block(BlockingReason.COMPACTING)
        self._kernel.tasks.spawn(self._run(runtime, work, future), until_close=True)
        return future

    async def _run(self, runtime: ThreadRuntime, work: Callable[[], Awaitable[T]], future: "asyncio.Future[T]") -> None:
        """Run from block to unblock. It ends the future in every case."""
        try:
            await runtime.idle()
            result = await work()
            if not future.done():
                future.set_result(result)
        except BaseException as error:  # every error ends the future, so that nobody waits for ever
            _fail(future, error)
            if not isinstance(error, MemoryEngineError):
                raise
        finally:
            self._running.pop(runtime.id).set_result(None)
            runtime.unblock(BlockingReason.COMPACTING)

    async def _again(
        self, runtime: ThreadRuntime, again: Callable[[], Awaitable[Again]], compactor: Compactor | None
    ) -> CompactionReport:
        found = await again()
        if not found.plan:
            raise NothingToCompact(runtime.id, "what came back is critical, open, or cannot get shorter")
        if compactor is None:
            return await self._execute(runtime, "manual", found, self._compactors)
        cannot = refused(runtime.state, found.plan, compactor, found.afresh)
        if cannot:
            which = f"chunk {cannot[0].id} ({cannot[0].type})" + f" and {len(cannot) - 1} more" * (len(cannot) > 1)
            raise CompactorFailed(compactor.name, "refused", f"it cannot take {which}")
        return await self._execute(runtime, "manual", found, [compactor])

    async def _attempt(
        self, runtime: ThreadRuntime, trigger: Trigger, chunk_ids: Collection[str] | None
    ) -> CompactionReport:
        """Compact once; where a compactor keeps failing, or the hard limit is passed, another stands in for it."""
        failures = self._failures.setdefault(runtime, Failures())
        by_hand = trigger == "manual"
        failure = failures.passed_over(by_hand=by_hand)
        try:
            report = await self._planned(runtime, trigger, chunk_ids, failure)
        except CompactorFailed as failed:
            overdue = is_overdue(runtime.state.tally, self.policy_of(runtime))
            if failed.compactor == self.fallback.name or not (
                failures.needs_another(failed, by_hand=by_hand) or overdue
            ):
                raise
            trigger, failure = "hard" if overdue else trigger, failed
            report = await self._planned(runtime, trigger, chunk_ids, failed)
        if failure is None:
            failures.ended()
        else:
            told = (runtime.id, failure.compactor, failure.reason, failure.error, report.compactor)
            _log.warning("thread %r: compactor %s failed (%s: %s); %s stands in for it", *told)
        return report

    async def _planned(
        self,
        runtime: ThreadRuntime,
        trigger: Trigger,
        chunk_ids: Collection[str] | None,
        failure: CompactorFailed | None,
    ) -> CompactionReport:
        """Plan and compact, without the compactor of the failure. Raises `NothingToCompact`."""
        state, policy = runtime.state, self.policy_of(runtime)
        if trigger == "manual":
            work = partial(plan_manual, state, policy, chunk_ids)
        else:
            work = partial(plan_auto, state, policy, frozenset(runtime.incompressible))
        again = Again(await aside(work, items=len(state)))
        compactors = [c for c in self._compactors if failure is None or c.name != failure.compactor]
        return await self._execute(runtime, trigger, again, compactors, wanted=chunk_ids, failure=failure, state=state)

    async def _execute(  # noqa: PLR0913 - what it is made of, and two facts about how it came to be
        self,
        runtime: ThreadRuntime,
        trigger: Trigger,
        again: Again,
        compactors: Sequence[Compactor],
        *,
        wanted: Collection[str] | None = (),
        failure: CompactorFailed | None = None,
        state: State | None = None,
    ) -> CompactionReport:
        state, policy = runtime.state if state is None else state, self.policy_of(runtime)
        plan, outside = declared(state, again.plan, compactors, wanted, runtime.incompressible)
        if not plan:
            raise NothingToCompact(runtime.id, NOTHING_LEFT)
        groups = await aside(partial(grouped, state, plan.batch, again.afresh), items=len(state))

        async def append(events: Sequence[Event]) -> Receipt:
            receipt = await self._append(
                runtime, events, run.check if isinstance(events[-1], CompactionCompleted) else None
            )
            if policy.blocking == "commit" and isinstance(events[-1], CompactionStarted | CompactorStoodIn):
                runtime.unblock(BlockingReason.COMPACTING)
            return receipt

        async def ready() -> None:
            runtime.queue.block(BlockingReason.COMPACTING)
            await runtime.idle()

        run = CompactionRun(
            thread_id=runtime.id,
            compaction_id=self._kernel.new_id(),
            state=state,
            plan=plan,
            trigger=trigger,
            pieces=(*assigned(state, plan, compactors, self.fallback, afresh=again.afresh, groups=groups), *outside),
            policy=policy,
            originals=LogOriginals(self._kernel.reader, runtime.id),
            append=append,
            now_us=self._kernel.now_us(),
            incompressible=runtime.incompressible,
            afresh=again.afresh,
            failure=failure,
            ready=ready,
            pause=self._pace.here.pause,
            ahead=self._works_ahead(trigger),
        )
        return await run.execute()

    async def _append(
        self, runtime: ThreadRuntime, events: Sequence[Event | NewEvent], check: Callable[[State], None] | None = None
    ) -> Receipt:
        """Commit events of the protocol itself, past the block, to the end even where the caller is cancelled.

        Gives the last one's receipt.
        """
        request = self._kernel.request(events, system=True, check=check)
        return (await finished(runtime.submit(request)))[-1]

    def _back_off(self, runtime: ThreadRuntime, error: BaseException) -> None:
        """After a failure, wait until more has come: half a threshold, then twice as much each time.

        After a compaction that was given up, since its chunks had changed, wait for a quarter only.
        """
        wait = max(1, self.policy_of(runtime).threshold // 4)
        if not (isinstance(error, CompactorFailed) and error.reason == SUPERSEDED):
            runtime.compaction_failures = min(runtime.compaction_failures + 1, 6)
            wait *= 2**runtime.compaction_failures
        runtime.compaction_backoff = runtime.state.tally.compactable + wait
        if isinstance(error, CompactionError):
            _log.warning("thread %r: not compacted, and not tried before %d more chunks: %s", runtime.id, wait, error)


def _is_needed(tally: Tally, policy: CompactionPolicy, trigger: Trigger) -> bool:
    """Whether a compaction for this reason is still needed: another process may have done it."""
    return {"auto": is_due, "hard": is_overdue}[trigger](tally, policy) if trigger != "manual" else True


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)
