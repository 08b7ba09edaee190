"""Starts compactions when thresholds or callers ask for them, and cleans up after processes that died."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from memory_engine.compaction.base import Compactor, StandingStatements, blocks_whole, calls_model, works_ahead
from memory_engine.compaction.thresholds import due_from, is_due, is_flooded, is_needed, is_overdue, is_pressing
from memory_engine.core.aside import aside, imported
from memory_engine.core.cancellation import fail, finished, observed
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import CompactionCompleted, CompactionStarted, CompactorStoodIn
from memory_engine.core.lazy import is_loaded, lazy_module, lazy_modules
from memory_engine.core.records import NewEvent, Receipt
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
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.thread_runtime import ThreadRuntime

if TYPE_CHECKING:
    from memory_engine.compaction import assignment, failures, history, leases, protocol
    from memory_engine.compaction import hooks as hooking
    from memory_engine.compaction import plan as planning
    from memory_engine.compaction.assignment import Again
    from memory_engine.compaction.hooks import UpcomingCompaction, Wishes
    from memory_engine.compaction.protocol import CompactionReport, Trigger
    from memory_engine.context import builder
else:
    builder = lazy_module("memory_engine.context.builder")
    assignment, failures, history, hooking, leases, planning, protocol = lazy_modules(
        "memory_engine.compaction", "assignment failures history hooks leases plan protocol"
    )

_log = logging.getLogger("memory_engine.compaction")
HARD_DEADLINE_S = 20.0
"""Maximum seconds for a model while a context waits for it because the thread is over the hard limit."""
HARD_LIMITS_MAX = 2
"""Multiple of the hard token limit from which a working model is given up even if no context waits for it."""
NOTHING_LEFT = "every chunk is critical, open, being worked on, too new, or cannot get shorter"

T = TypeVar("T")


class CompactionService:
    """Decides when to compact which thread with which compactor. Runs one compaction at a time per thread."""

    def __init__(self, kernel: Kernel, compactors: Sequence[tuple[Compactor, int]], fallback: Compactor) -> None:
        self._kernel = kernel
        self._policy = kernel.config.compaction
        self._compactors = [c for c, _ in sorted(compactors, key=lambda entry: -entry[1])]
        self.fallback = fallback
        self._running: dict[str, asyncio.Future[None]] = {}
        kernel.home.moved.append(self._running.clear)
        self._failures: WeakKeyDictionary[ThreadRuntime, failures.Failures] = WeakKeyDictionary()

    @cached_property
    def hooks(self) -> "hooking.CompactionHooks":
        """The hooks that run before a compaction."""
        return hooking.CompactionHooks(self._kernel.config.before_compaction_timeout_s)

    @cached_property
    def _restored(self) -> "failures.RestoredChunks":
        return failures.RestoredChunks()

    @cached_property
    def _models(self) -> "leases.ModelsAtWork":
        return leases.ModelsAtWork()

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        """Compactors in the order in which they are asked."""
        return tuple(self._compactors)

    def register(self, compactor: Compactor) -> None:
        """Add a compactor that is asked before all others. Raises `InvalidCompactor`."""
        self._compactors.insert(0, assignment.checked_compactor(compactor))

    def policy_of(self, runtime: ThreadRuntime) -> CompactionPolicy:
        """Return the thread's own policy, or the engine's, with limits as numbers for the window of the thread."""
        return (runtime.record.policy or self._policy).applied(runtime.window)

    def is_running(self, thread_id: str) -> bool:
        """Return True if a compaction of the thread is running in this process."""
        return thread_id in self._running

    def after_commit(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        """Start a compaction in the background if one is due. By default, the queue is blocked from this moment."""
        policy = self.policy_of(runtime)
        tally = runtime.state.tally
        if not is_due(tally, policy) or self._kernel.tasks.closing:
            runtime.due_tokens = due_from(policy) // (1 if is_loaded(planning) else 2)
            is_near = policy.enabled and 2 * tally.compactable > policy.threshold
            if is_near and not is_loaded(planning) and not self._kernel.tasks.closing:
                self._kernel.tasks.spawn(imported(planning, assignment, failures, leases, history))
            return
        if self.is_running(runtime.id):
            if self._is_too_much(runtime, tally, policy):
                self._hold(runtime)
            return
        self._restored.spare(runtime, policy)
        if tally.compactable < runtime.compaction_backoff:
            return
        plan = planning.plan_auto(runtime.state, policy, runtime.incompressible)
        if not plan:
            runtime.compaction_backoff = tally.compactable + max(1, policy.threshold // 4)
            return
        last = reduced[-1].stored if reduced else None  # the compaction is recorded as caused by it
        with linked(Links() if last is None else Links(last.id, last.correlation_id)):
            self._start(runtime, "auto", None)

    def _is_too_much(self, runtime: ThreadRuntime, tally: Tally, policy: CompactionPolicy) -> bool:
        """Return True if events must wait for the running compaction; for a model, at `HARD_LIMITS_MAX` hard limits."""
        if self._works_ahead("auto"):
            return is_flooded(tally, policy)
        if runtime.id in self._models:
            policy = replace(policy, hard_tokens=(policy.hard_tokens or 0) * HARD_LIMITS_MAX)
        return is_overdue(tally, policy)

    def _hold(self, runtime: ThreadRuntime) -> None:
        """Block events until the running compaction has ended, and speed it up: a working model is given up at once."""
        if self.hooks.are_running(runtime.id):
            return  # hooks may dispatch events
        self._models.give_up(runtime.id)
        if runtime.queue.blocking_reason is None:
            runtime.queue.block(BlockingReason.COMPACTING)
            self._kernel.tasks.spawn(self.settle(runtime))

    async def compact(
        self,
        runtime: ThreadRuntime,
        chunk_ids: Collection[str] | None,
        trigger: "Trigger" = "manual",
        *,
        focus: str = "",
    ) -> "CompactionReport":
        """Compact now, after any running compaction. Cancelling the caller does not stop the compaction.

        Raises `NothingToCompact`, or `CompactorFailed` (recorded in the log).
        """
        await self._turn(runtime)
        return await asyncio.shield(self._start(runtime, trigger, chunk_ids, focus))

    async def redo(
        self, runtime: ThreadRuntime, again: "Callable[[], Awaitable[Again]]", compactor: Compactor | None
    ) -> "CompactionReport":
        """Compact what `again` finds, after any running compaction. If `compactor` is given, only this one is used.

        Raises what `again` raises, `NothingToCompact`, `CompactorFailed`. Cancelling the caller does not stop it.
        """
        await self._turn(runtime)
        hooked = bool(self.hooks)

        async def work() -> "CompactionReport":
            wishes = hooking.Wishes.of(self._instructions(runtime))
            if hooked:  # hooks may dispatch, so nothing is blocked while they run
                await self._look(runtime)
                wishes = await self._wishes(
                    runtime, hooking.UpcomingCompaction.of_chunks(runtime.id, (await again()).chunks_in(runtime.state))
                )
                await self._block(runtime)
            return await self._compaction(runtime, lambda: self._again(runtime, again, compactor, wishes))

        # The queue is blocked while `again` reads what there is to redo.
        return await asyncio.shield(self._alone(runtime, work, is_blocked=not hooked))

    async def commit(self, runtime: ThreadRuntime, make: Callable[[], Awaitable[NewEvent]]) -> Receipt:
        """Commit an event that `make` derives from the current state, after any running compaction.

        No other event of this process is committed in between. If another process writes, `make` is called again.
        Raises what `make` raises, and `ContentionError` if other processes write continuously. Cancelling the caller
        does not stop the commit.
        """
        await self._turn(runtime)
        return await asyncio.shield(self._alone(runtime, lambda: self._commit(runtime, make)))

    async def _commit(self, runtime: ThreadRuntime, make: Callable[[], Awaitable[NewEvent]]) -> Receipt:
        tries = self._kernel.config.commit_tries_max
        for _ in range(tries):
            await self._look(runtime)
            try:
                return await self._append(runtime, [await make()])
            except IdempotencyConflict:  # another process did the same with different text
                continue
            except ReducerError as error:
                if not isinstance(error.__cause__, StaleEvent):
                    raise
        raise ContentionError(runtime.id, tries)

    async def _look(self, runtime: ThreadRuntime) -> None:
        """Catch up with events that other processes committed."""
        head = await self._kernel.store.head(runtime.id)
        if (head.seq, head.epoch) != (runtime.head.seq, runtime.head.epoch):
            await runtime.exclusively(runtime.catch_up)

    async def before_context(self, runtime: ThreadRuntime) -> None:
        """If the hard limit is passed, wait for a compaction. If the compactor fails, the embedded one replaces it."""
        policy = self.policy_of(runtime)
        if not is_overdue(runtime.state.tally, policy) or self.hooks.are_running(runtime.id):
            return  # a hook may ask for the context, and the compaction waits for the hook
        await self._end_of(runtime)  # the running compaction may be enough
        if not is_overdue(runtime.state.tally, policy):
            return
        try:
            await self.compact(runtime, None, "hard")
        except NothingToCompact:
            return
        except CompactionError as error:
            _log.warning("thread %r: over the hard limit and not compacted: %s", runtime.id, error)

    async def _end_of(self, runtime: ThreadRuntime) -> None:
        """Wait until no compaction is running. Give up a model that takes longer than a context may wait."""
        if runtime.id in self._models:
            with self._kernel.pace.awaited():
                await asyncio.wait([self._running[runtime.id]], timeout=HARD_DEADLINE_S)
            self._models.give_up(runtime.id)
        await self.settle(runtime)

    async def settle(self, runtime: ThreadRuntime) -> None:
        """Wait until no compaction of the thread is running. Its outcome is in the log."""
        with self._kernel.pace.awaited():
            while runtime.id in self._running:
                await asyncio.wait([self._running[runtime.id]])

    async def _turn(self, runtime: ThreadRuntime) -> None:
        await self.settle(runtime)
        if self._kernel.tasks.closing:
            raise EngineClosed

    async def recover(self, runtime: ThreadRuntime) -> None:
        """Record an unfinished compaction as abandoned, if no process can end it any more. Does not retry it."""
        if not runtime.head.open_compaction or self.is_running(runtime.id):
            return
        async with leases.leased(self._kernel.store, runtime.id, wait_s=0) as is_ours:
            await self._look(runtime)  # the compaction may have ended since, and its lease been released
            await leases.close(self._kernel, runtime, is_ours, self._append)

    def _start(
        self, runtime: ThreadRuntime, trigger: "Trigger", chunk_ids: Collection[str] | None, focus: str = ""
    ) -> "asyncio.Future[CompactionReport]":
        ahead = self._works_ahead(trigger)
        is_blocked = blocks_whole(self.policy_of(runtime), self._compactors) and not ahead
        hooked = bool(self.hooks)

        async def work() -> "CompactionReport":
            upcoming = hooking.UpcomingCompaction.of(runtime.id, trigger, runtime.state.tally, focus)
            wishes = await self._wishes(runtime, upcoming)
            if is_blocked and hooked:
                await self._block(runtime)
            pace, presses = self._kernel.pace, lambda: is_pressing(runtime.state.tally, self.policy_of(runtime))
            if ahead:
                await pace.quiet(presses)
            async with pace.after_others(presses) if ahead else nullcontext():
                attempt = lambda: self._attempt(runtime, trigger, chunk_ids, wishes)  # noqa: E731
                return await self._compaction(runtime, attempt, trigger)

        return self._alone(runtime, work, is_blocked=is_blocked and not hooked)

    async def _block(self, runtime: ThreadRuntime) -> None:
        """Block events from now on, and wait for those that are already queued."""
        runtime.queue.block(BlockingReason.COMPACTING)
        await runtime.idle()

    async def _wishes(self, runtime: ThreadRuntime, upcoming: "UpcomingCompaction") -> "Wishes":
        """Return the instructions for the compactor: from the engine, the thread's policy, the hooks and the caller."""
        said, note = await self.hooks.run(upcoming)
        return hooking.Wishes.of(self._instructions(runtime), said, focus=upcoming.focus, note=note)

    def _instructions(self, runtime: ThreadRuntime) -> tuple[str, str]:
        return self._kernel.config.compaction_instructions, self.policy_of(runtime).instructions

    def _works_ahead(self, trigger: "Trigger") -> bool:
        """Return True if a compaction computes its result before it starts, at a quiet moment: no call waits for it."""
        return trigger == "auto" and all(map(works_ahead, (*self._compactors, self.fallback)))

    async def _compaction(
        self,
        runtime: ThreadRuntime,
        attempt: "Callable[[], Awaitable[CompactionReport]]",
        trigger: "Trigger" = "manual",
    ) -> "CompactionReport":
        """Run one compaction in one process at a time. A failure delays the next due compaction."""
        policy = self.policy_of(runtime)
        try:
            async with leases.leased(
                self._kernel.store, runtime.id, wait_s=0 if trigger == "auto" else policy.deadline_s
            ) as is_ours:
                if trigger == "auto" and is_ours is False:
                    runtime.compaction_backoff = runtime.state.tally.compactable + max(1, policy.threshold // 4)
                    raise NothingToCompact(runtime.id, "another process is compacting it")
                await self._look(runtime)
                await leases.close(self._kernel, runtime, is_ours, self._append)
                if not is_needed(runtime.state.tally, policy, trigger):
                    raise NothingToCompact(runtime.id, "another process has compacted it")
                with self._kernel.span("compaction", {"thread": runtime.id, "trigger": trigger}) as span:
                    report = await attempt()
                    tokens = {"before": report.tokens_before, "after": report.tokens_after}
                    span.say({"compactor": report.compactor, **tokens})
        except (NothingToCompact, CompactionNotLive):
            raise
        except BaseException as error:  # every error goes on to the caller
            failures.back_off(runtime, policy, error)
            raise
        failures.go_on(runtime, policy, has_left_out=bool(report.left_out))
        return report

    def _alone(
        self, runtime: ThreadRuntime, work: Callable[[], Awaitable[T]], *, is_blocked: bool = True
    ) -> "asyncio.Future[T]":
        """Run work exclusively: no other compaction of the thread runs, and no event if the queue is blocked.

        The queue is blocked from this moment until the work is done or unblocks it.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.add_done_callback(observed)  # a failure is already in the log
        self._running[runtime.id] = asyncio.get_running_loop().create_future()
        if is_blocked:
            runtime.queue.block(BlockingReason.COMPACTING)
        self._kernel.tasks.spawn(self._run(runtime, work, future), until_close=True)
        return future

    async def _run(self, runtime: ThreadRuntime, work: Callable[[], Awaitable[T]], future: "asyncio.Future[T]") -> None:
        """Run the work, then unblock the queue. The future is resolved in every case."""
        try:
            await runtime.idle()
            result = await work()
            if not future.done():
                future.set_result(result)
        except BaseException as error:  # every error ends the future, so that no one waits forever
            is_over = self._kernel.tasks.closing and isinstance(error, asyncio.CancelledError)
            fail(future, EngineClosed() if is_over else error)
            if not isinstance(error, MemoryEngineError):
                raise
        finally:
            self._running.pop(runtime.id).set_result(None)
            runtime.unblock(BlockingReason.COMPACTING)

    async def _again(
        self,
        runtime: ThreadRuntime,
        again: "Callable[[], Awaitable[Again]]",
        compactor: Compactor | None,
        wishes: "Wishes",
    ) -> "CompactionReport":
        found = await again()
        if not found.plan:
            raise NothingToCompact(runtime.id, "what came back is critical, open, or cannot get shorter")
        if compactor is None:
            return await self._execute(runtime, "manual", found, self._compactors, wishes=wishes)
        cannot = assignment.refused(runtime.state, found.plan, compactor, found.afresh)
        if cannot:
            which = f"chunk {cannot[0].id} ({cannot[0].type})" + f" and {len(cannot) - 1} more" * (len(cannot) > 1)
            raise CompactorFailed(compactor.name, "refused", f"it cannot take {which}")
        return await self._execute(runtime, "manual", found, [compactor], wishes=wishes)

    async def _attempt(
        self, runtime: ThreadRuntime, trigger: "Trigger", chunk_ids: Collection[str] | None, wishes: "Wishes"
    ) -> "CompactionReport":
        """Compact once. If a compactor keeps failing, or the hard limit is passed, another compactor replaces it."""
        failed_so_far = self._failures.setdefault(runtime, failures.Failures())
        by_hand = trigger == "manual"
        failure = failed_so_far.passed_over(by_hand=by_hand)
        try:
            report = await self._planned(runtime, trigger, chunk_ids, failure, wishes)
        except CompactorFailed as failed:
            overdue = is_overdue(runtime.state.tally, self.policy_of(runtime))
            if failed.compactor == self.fallback.name or not (
                failed_so_far.needs_another(failed, by_hand=by_hand) or overdue
            ):
                raise
            trigger, failure = "hard" if overdue else trigger, failed
            report = await self._planned(runtime, trigger, chunk_ids, failed, wishes)
        if report.left_out_by not in ("", self.fallback.name):
            why = f"what it made of {len(report.left_out)} chunks was no shorter"
            failed_so_far.needs_another(CompactorFailed(report.left_out_by, "not_shorter", why), by_hand=by_hand)
        elif failure is None:
            failed_so_far.ended()
        if failure is not None:
            told = (runtime.id, failure.compactor, failure.reason, failure.error, report.compactor)
            _log.warning("thread %r: compactor %s failed (%s: %s); %s stands in for it", *told)
        return report

    async def _planned(
        self,
        runtime: ThreadRuntime,
        trigger: "Trigger",
        chunk_ids: Collection[str] | None,
        failure: CompactorFailed | None,
        wishes: "Wishes",
    ) -> "CompactionReport":
        """Plan and compact, without the compactor that failed. Raises `NothingToCompact`."""
        state, policy = runtime.state, self.policy_of(runtime)
        if trigger == "manual":
            work = partial(planning.plan_manual, state, policy, chunk_ids)
        else:
            work = partial(planning.plan_auto, state, policy, frozenset(runtime.incompressible))
        again = assignment.Again(await aside(work, items=len(state)))
        compactors = [c for c in self._compactors if failure is None or c.name != failure.compactor]
        return await self._execute(
            runtime, trigger, again, compactors, wanted=chunk_ids, failure=failure, state=state, wishes=wishes
        )

    async def _execute(  # noqa: PLR0913 - the inputs of a run, and two facts about its origin
        self,
        runtime: ThreadRuntime,
        trigger: "Trigger",
        again: "Again",
        compactors: Sequence[Compactor],
        *,
        wanted: Collection[str] | None = (),
        failure: CompactorFailed | None = None,
        state: State | None = None,
        wishes: "Wishes",
    ) -> "CompactionReport":
        state, policy = runtime.state if state is None else state, self.policy_of(runtime)
        plan, outside = assignment.declared(state, again.plan, compactors, wanted, runtime.incompressible)
        if not plan:
            raise NothingToCompact(runtime.id, NOTHING_LEFT)
        groups = await aside(partial(assignment.grouped, state, plan.batch, again.afresh), items=len(state))
        pieces = (
            *assignment.assigned(state, plan, compactors, self.fallback, afresh=again.afresh, groups=groups),
            *outside,
        )
        whole, asks = blocks_whole(policy, self._compactors), any(calls_model(compactor) for compactor, _ in pieces)
        if asks and trigger == "hard" and not whole:
            policy = replace(policy, deadline_s=min(policy.deadline_s, HARD_DEADLINE_S))

        async def append(events: Sequence[Event]) -> Receipt:
            last = events[-1]
            receipt = await self._append(
                runtime, events, partial(run.check, last) if isinstance(last, CompactionCompleted) else None
            )
            if not whole and isinstance(last, CompactionStarted | CompactorStoodIn):
                runtime.unblock(BlockingReason.COMPACTING)
            return receipt

        run = protocol.CompactionRun(
            thread_id=runtime.id,
            compaction_id=self._kernel.new_id(),
            state=state,
            plan=plan,
            trigger=trigger,
            pieces=pieces,
            policy=policy,
            originals=history.LogOriginals(self._kernel.reader, runtime.id),
            append=append,
            now_us=self._kernel.now_us(),
            incompressible=runtime.incompressible,
            afresh=again.afresh,
            failure=failure,
            ready=partial(self._block, runtime),
            pause=self._kernel.pace.pause,
            ahead=self._works_ahead(trigger),
            wishes=wishes,
            mask=self._kernel.mask,
            brief=lambda: self._kernel.made(StandingStatements).read(ThreadHandle(self._kernel, runtime.id), state.seq),
            count=self._kernel[builder.ContextBuilder].counter.count,
            hurry=asyncio.Event() if asks and not whole else None,
        )
        with self._models.working(run):
            return await run.execute()

    async def _append(
        self, runtime: ThreadRuntime, events: Sequence[Event | NewEvent], check: Callable[[State], None] | None = None
    ) -> Receipt:
        """Commit events of the protocol, which pass the block, to completion even if the caller is cancelled.

        Return the receipt of the last event.
        """
        request = self._kernel.request(events, system=True, check=check)
        return (await finished(runtime.submit(request)))[-1]
