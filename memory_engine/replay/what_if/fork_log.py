"""The log that a rerun makes: in memory until it is whole, then a fork in the store.

A rerun compacts where the thresholds ask for it, directly after the event that passes them.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import cast

import msgspec
from attrs import define, field, frozen

from memory_engine.compaction.assignment import assigned, declared
from memory_engine.compaction.base import Compactor
from memory_engine.compaction.failures import Failures
from memory_engine.compaction.history import LogOriginals
from memory_engine.compaction.hooks import Wishes
from memory_engine.compaction.plan import Plan, plan_auto, plan_manual
from memory_engine.compaction.protocol import CompactionRun, Trigger
from memory_engine.compaction.thresholds import is_due, is_overdue
from memory_engine.context.rendering import Renderer
from memory_engine.core.cancellation import finished
from memory_engine.core.chain import chain_hash, live_chunk, next_head
from memory_engine.core.codec import checked_record, encode_event
from memory_engine.core.events.base import Event
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.records import Receipt, StoredEvent
from memory_engine.core.reduction import ReduceContext, ReducerRegistry, reduce_onto
from memory_engine.core.state import State, Tally
from memory_engine.core.threads import ACTIVE, CompactionPolicy, ForkPoint, Head, LiveChunk, ThreadRecord
from memory_engine.errors import CompactorFailed, EventTooLarge
from memory_engine.language.masking import SECRETS, Mask
from memory_engine.projections.follower import ProjectionWorker
from memory_engine.runtime.commit import Reduced
from memory_engine.runtime.kernel import Kernel
from memory_engine.store import snapshots
from memory_engine.store.attested import imported
from memory_engine.store.protocol import CommitUnit, Store
from memory_engine.store.reader import LogReader

BATCH = 512
"""Events of one commit."""
PENDING_MAX = 20_000
"""Events that are held in memory before those that are made are written."""


@frozen(kw_only=True)
class ForkRules:
    """The rules of a log's run: its events, their reducers, and the renderers of their chunks."""

    events: EventRegistry = field(repr=False)
    reducers: ReducerRegistry = field(repr=False)
    renderers: Mapping[str, Renderer] = field(repr=False)


@frozen(kw_only=True)
class Envelope:
    """The envelope of an event. Times in microseconds since 1970."""

    id: str
    recorded_at_us: int
    occurred_at_us: int | None = None
    causation_id: str = ""
    correlation_id: str = ""

    @classmethod
    def of(cls, stored: StoredEvent) -> "Envelope":
        """The envelope of a row."""
        return cls(
            id=stored.id,
            recorded_at_us=stored.recorded_at_us,
            occurred_at_us=stored.occurred_at_us,
            causation_id=stored.causation_id,
            correlation_id=stored.correlation_id,
        )


@frozen
class ForkOrigin:
    """The point where a fork leaves its thread: that thread's record and head, the state there, the hash of the log."""

    record: ThreadRecord
    head: Head
    state: State
    hash: bytes


class ForkLog:
    """Appends events to a fork that begins at `origin`. `state` and `head` are after the last of them.

    `record` is the fork's, but for where it begins, and `None` where it is never to be written.
    """

    def __init__(self, kernel: Kernel, rules: ForkRules, origin: ForkOrigin, record: ThreadRecord | None) -> None:
        self._kernel = kernel
        self._rules = rules
        self._origin = origin
        self._record = record
        seq = origin.state.seq
        self.point = seq
        self.state = origin.state
        self.head = self._first = Head(
            seq=seq,
            hash=origin.hash,
            status=ACTIVE,
            chunks=origin.state.tally.chunks,
            tokens=origin.state.tally.tokens,
            marks={name: min(mark, seq) for name, mark in origin.head.marks.items()},
        )
        self._rows: dict[int, StoredEvent] = {}
        self._units: list[CommitUnit] = []
        self._is_made = False
        self._begin_batch()
        self.reader = LogReader(cast("Store", _Rows(self)), rules.events, read_only=True)

    @property
    def thread_id(self) -> str:
        """The fork's id; that of the thread where it is never written."""
        return self._origin.record.id if self._record is None else self._record.id

    def append(self, event: Event, envelope: Envelope, recorded: StoredEvent | None = None) -> Reduced:
        """Reduce an event and link its row. `recorded` is the row whose very bytes it was read from, if any.

        Raises `ReducerError`, `InvalidEvent`, `EventTooLarge`; then nothing has changed.
        """
        if recorded is not None:
            payload, version = recorded.payload, recorded.version
        else:
            (payload, event), version = encode_event(event, self._rules.events), event.event_version
            if len(payload) > self._kernel.config.event_bytes_max:
                raise EventTooLarge(event.event_type, len(payload), self._kernel.config.event_bytes_max)
        seq = self.head.seq + 1
        entries = self._rules.reducers.of_type(event.event_type)
        context = ReduceContext(seq, envelope.id, envelope.recorded_at_us)
        state, reduction, places = reduce_onto(self.state, entries, event, context, self.thread_id)
        record = checked_record(reduction, event, thread_id=self.thread_id, reducers=entries)
        header = (
            seq, envelope.id, event.event_type, version, envelope.recorded_at_us, envelope.occurred_at_us,
            envelope.causation_id, envelope.correlation_id,
        )  # fmt: skip
        salt = self._kernel.ids.salt()
        digest = chain_hash(self.head.hash, header, salt, payload, record)
        stored = StoredEvent(*header, payload, record, salt, digest)
        for chunk_id, placed in places.items():
            self._live[chunk_id] = live_chunk(placed)
        self.state = state
        self.head = next_head(self.head, stored, self.state.tally, tracked=event.event_tracked)
        self._rows[seq] = stored
        self._batch.append(stored)
        if len(self._batch) >= BATCH:
            self._end_batch()
        return Reduced(stored, event, reduction)

    def _begin_batch(self) -> None:
        self._before = self.head
        self._batch: list[StoredEvent] = []
        self._live: dict[str, LiveChunk | None] = {}

    def _end_batch(self) -> None:
        unit = CommitUnit(
            thread_id=self.thread_id,
            expected=self._before,
            head=msgspec.structs.replace(self.head, open_compaction=0),  # one under way is the original's
            events=self._batch,
            live=self._live,
            projections=[
                *snapshots.of_commit(self._before, self.state, self.head),
                imported(self._before.seq, self.head.seq),  # the original delivered the facts of these events already
            ],
        )
        self._units.append(unit)
        self._begin_batch()

    @property
    def is_full(self) -> bool:
        """Whether enough rows are held to be written."""
        return self._record is not None and len(self._rows) >= PENDING_MAX

    async def write(self) -> None:
        """Make the fork, if it is not there, and commit what was appended. Raises `ThreadExists`, `StorageError`."""
        if self._record is None:
            return
        if self._batch:
            self._end_batch()
        store = self._kernel.store
        if not self._is_made:
            live = [row for placed in self._origin.state.placed() if (row := live_chunk(placed)) is not None]
            point = ForkPoint(self._origin.record.id, self.point)
            record = msgspec.structs.replace(self._record, forked_from=point)
            await finished(self._make(record, live))
        for unit in self._units:
            await store.commit(unit)
        self._units.clear()
        self._rows.clear()
        self._kernel[ProjectionWorker].touched(self.thread_id)

    async def _make(self, record: ThreadRecord, live: Sequence[LiveChunk]) -> None:
        """Make the fork. Where a thread of its id was deleted, such as an earlier try's, its epochs begin elsewhere."""
        await self._kernel.store.create(record, self._first, live)
        self._is_made = True
        epoch = (await self._kernel.store.head(record.id)).epoch
        self.head, self._before = (msgspec.structs.replace(head, epoch=epoch) for head in (self.head, self._before))
        for n, unit in enumerate(self._units):
            expected, head = (msgspec.structs.replace(head, epoch=epoch) for head in (unit.expected, unit.head))
            self._units[n] = msgspec.structs.replace(unit, expected=expected, head=head)

    async def discard(self) -> None:
        """Leave nothing behind but, if it was made already, the id of a deleted thread."""
        if self._is_made:
            await self._kernel.store.delete(self.thread_id)

    async def rows_at(self, seqs: Collection[int]) -> list[StoredEvent]:
        """The rows at these seqs, in order: those that are held, those written, those of the shared past."""
        source = self.thread_id if self._is_made else self._origin.record.id
        elsewhere = [seq for seq in seqs if seq not in self._rows and (self._is_made or seq <= self.point)]
        found = {row.seq: row for row in await self._kernel.store.read_at(source, elsewhere)} if elsewhere else {}
        return [row for seq in sorted(seqs) if (row := self._rows.get(seq) or found.get(seq)) is not None]


class _Rows:
    """The part of a store's protocol that a `LogReader` needs for chunks and their lineage."""

    def __init__(self, log: ForkLog) -> None:
        self._log = log

    async def head(self, _thread_id: str) -> Head:
        return self._log.head

    async def read_at(self, _thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        return await self._log.rows_at(seqs)

    async def read(
        self, _thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        found: list[StoredEvent] = []
        last = min(upto, self._log.head.seq)
        while after < last and len(found) < limit:
            page = await self._log.rows_at(range(after + 1, min(last, after + limit) + 1))
            found += [row for row in page if types is None or row.type in types]
            after = min(last, after + limit)
        return found[:limit]


@define(kw_only=True)
class Recompaction:
    """Decides as `CompactionService` does, for one log that is run again.

    Without `by_hand` nothing is compacted where a caller had asked for it.
    """

    policy: CompactionPolicy
    compactors: Sequence[Compactor]
    fallback: Compactor
    by_hand: bool
    state: Callable[[], State]
    append: Callable[[Sequence[Event]], Awaitable[Receipt]]
    new_id: Callable[[], str]
    mask: Mask | None = SECRETS
    _backoff: int = 0
    _waits: int = 0
    _failures: Failures = field(factory=Failures)
    _incompressible: set[str] = field(factory=set)
    _originals: LogOriginals | None = None
    _thread_id: str = ""

    def read_from(self, reader: LogReader, thread_id: str) -> None:
        """The rerun has a log of its own, from which originals are read."""
        self._originals, self._thread_id = LogOriginals(reader, thread_id), thread_id

    def is_due(self, tally: Tally) -> bool:
        """Whether the thresholds ask for one after an event, and it is worth a try."""
        return is_due(tally, self.policy) and tally.compactable >= self._backoff

    def due(self, state: State) -> Plan | None:
        """The plan of the compaction due after an event."""
        if not self.is_due(state.tally):
            return None
        plan = plan_auto(state, self.policy, self._incompressible)
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
            await self._attempt(plan_auto(state, self.policy, self._incompressible), "hard", now_us)

    async def asked(self, chunk_ids: Collection[str] | None, now_us: int) -> None:
        """Compact where someone asked for it: these chunks, or everything."""
        if self.by_hand:
            await self._attempt(plan_manual(self.state(), self.policy, chunk_ids), "manual", now_us)

    async def _attempt(self, plan: Plan, trigger: Trigger, now_us: int) -> None:
        if not plan:
            return
        by_hand = trigger == "manual"
        failure = self._failures.passed_over(by_hand=by_hand)
        try:
            try:
                await self._execute(plan, trigger, now_us, failure)
            except CompactorFailed as failed:
                overdue = is_overdue(self.state().tally, self.policy)
                needed = self._failures.needs_another(failed, by_hand=by_hand) or overdue
                if failed.compactor == self.fallback.name or not needed:
                    raise
                failure = failed
                await self._execute(plan, "hard" if overdue else trigger, now_us, failed)
        except CompactorFailed:  # it is in the rerun's log, as it would have been
            self._waits = min(self._waits + 1, 6)
            wait = max(1, self.policy.threshold // 4) * 2**self._waits
            self._backoff = self.state().tally.compactable + wait
        else:
            self._backoff = self._waits = 0
            if failure is None:
                self._failures.ended()

    async def _execute(self, plan: Plan, trigger: Trigger, now_us: int, failure: CompactorFailed | None) -> None:
        assert self._originals is not None, "nothing is compacted before the rerun goes its own way"
        state = self.state()
        compactors = [c for c in self.compactors if failure is None or c.name != failure.compactor]
        plan, outside = declared(state, plan, compactors, None, self._incompressible)
        run = CompactionRun(
            thread_id=self._thread_id,
            compaction_id=self.new_id(),
            state=state,
            plan=plan,
            trigger=trigger,
            pieces=(*assigned(state, plan, compactors, self.fallback), *outside),
            policy=self.policy,
            originals=self._originals,
            append=self.append,
            now_us=now_us,
            incompressible=self._incompressible,
            failure=failure,
            wishes=Wishes(instructions=self.policy.instructions),
            mask=self.mask,
        )
        await run.execute()
