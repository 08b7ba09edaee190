"""Compactions of a rerun: where the thresholds ask for them, directly after the event that passes them."""

from collections.abc import Awaitable, Callable, Collection, Sequence

from attrs import define, field

from memory_engine.compaction.assigning import assigned
from memory_engine.compaction.base import Compactor
from memory_engine.compaction.originals import LogOriginals
from memory_engine.compaction.planning import Plan, is_due, is_overdue, plan_auto, plan_manual
from memory_engine.compaction.running import Run, Trigger
from memory_engine.errors import CompactorFailed
from memory_engine.events.base import Event
from memory_engine.persistence import CompactionPolicy
from memory_engine.reading import LogReader
from memory_engine.records import Receipt
from memory_engine.state import State, Tally


@define(kw_only=True)
class Recompaction:
    """Decides as `CompactionService` does, for one log that is run again.

    Without `by_hand` nothing is compacted where somebody had asked for it.
    """

    policy: CompactionPolicy
    compactors: Sequence[Compactor]
    fallback: Compactor
    by_hand: bool
    state: Callable[[], State]
    append: Callable[[Event], Awaitable[Receipt]]
    new_id: Callable[[], str]
    _backoff: int = 0
    _failures: int = 0
    _stiff: set[str] = field(factory=set)
    _originals: LogOriginals | None = None
    _thread_id: str = ""

    def read_from(self, reader: LogReader, thread_id: str) -> None:
        """The rerun has a log of its own, from which originals are read."""
        self._originals, self._thread_id = LogOriginals(reader, thread_id), thread_id

    def is_due(self, tally: Tally) -> bool:
        """Whether the thresholds ask for one after an event, and it is worth a try."""
        return is_due(tally, self.policy) and tally.compactable >= self._backoff

    def due(self, state: State) -> Plan | None:
        """What is to be compacted after an event."""
        if not self.is_due(state.tally):
            return None
        plan = plan_auto(state, self.policy, self._stiff)
        if not plan:
            self._backoff = state.tally.compactable + max(1, self.policy.threshold // 4)
        return plan or None

    async def after_event(self, now_us: int) -> None:
        """Compact if a threshold is passed. `now_us` is the time of the event."""
        plan = self.due(self.state())
        if plan is not None:
            await self._attempt(plan, "auto", now_us)

    async def before_context(self, now_us: int) -> None:
        """Compact before a model call, if the hard limit is passed."""
        state = self.state()
        if is_overdue(state.tally, self.policy):
            await self._attempt(plan_auto(state, self.policy, self._stiff), "hard", now_us)

    async def asked(self, chunk_ids: Collection[str] | None, now_us: int) -> None:
        """Compact where someone asked for it: these chunks, or everything."""
        if self.by_hand:
            await self._attempt(plan_manual(self.state(), self.policy, chunk_ids), "manual", now_us)

    async def _attempt(self, plan: Plan, trigger: Trigger, now_us: int) -> None:
        if not plan:
            return
        try:
            try:
                await self._execute(plan, trigger, self.compactors, now_us)
            except CompactorFailed:
                if not is_overdue(self.state().tally, self.policy):
                    raise
                await self._execute(plan, "hard", (self.fallback,), now_us)
        except CompactorFailed:  # it is in the rerun's log, as it would have been
            self._failures = min(self._failures + 1, 6)
            wait = max(1, self.policy.threshold // 4) * 2**self._failures
            self._backoff = self.state().tally.compactable + wait
        else:
            self._backoff = self._failures = 0

    async def _execute(self, plan: Plan, trigger: Trigger, compactors: Sequence[Compactor], now_us: int) -> None:
        assert self._originals is not None, "nothing is compacted before the rerun goes its own way"
        state = self.state()
        run = Run(
            thread_id=self._thread_id,
            compaction_id=self.new_id(),
            state=state,
            plan=plan,
            trigger=trigger,
            pieces=assigned(state, plan, compactors, self.fallback),
            policy=self.policy,
            originals=self._originals,
            append=self.append,
            now_us=now_us,
            stiff=self._stiff,
        )
        await run.execute()
