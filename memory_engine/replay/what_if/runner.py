"""Running a log again under a change: event by event, as `verify` replays it, into a log of its own.

While every event comes out unchanged, the past is shared with the original; from the first that does not,
rows are made again, with the ids, times and causes that the events have. Nothing goes through a queue, and no event is
dispatched: the original thread is read and never opened.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from attrs import define, evolve, field, frozen

from memory_engine.compaction.base import Compactor
from memory_engine.compaction.plan import plan_manual
from memory_engine.compaction.service import CompactionService
from memory_engine.compaction.thresholds import is_overdue
from memory_engine.core.chain import decode_row
from memory_engine.core.codec import encode_reduction
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.compaction import (
    STEPS,
    CompactionAbandoned,
    CompactionCompleted,
    CompactionStarted,
    CompactionUndone,
    EventSkipped,
    SourceQuarantined,
    ThreadRereduced,
    ThreadRewound,
)
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.forgetting import Targets
from memory_engine.core.ids import uuid7
from memory_engine.core.lineage import Descent
from memory_engine.core.records import NewEvent, Receipt, StateHandle, StoredEvent
from memory_engine.core.reduction import ReduceContext, Reduction, reduce_into
from memory_engine.core.state import State, StateDraft
from memory_engine.core.threads import CompactionPolicy, LoadedThread, ThreadRecord
from memory_engine.errors import InvalidChange, ReducerError
from memory_engine.replay.cache_breaks import Runs
from memory_engine.replay.what_if.calls import CallSeries, Measure
from memory_engine.replay.what_if.change import Compactions, EventCounts, Refused, Script
from memory_engine.replay.what_if.fork_log import Envelope, ForkLog, ForkOrigin, ForkRules, Recompaction
from memory_engine.replay.what_if.references import Places, renumbered
from memory_engine.runtime.commit import Reduced
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.queue import occurred_us


@frozen(kw_only=True)
class Setting:
    """The settings of a rerun.

    `applied` is the policy that the original was compacted by.
    `compactors`: those that compact again, by `policy`, and `by_hand` where a caller had asked for it; `None` if
    compactions are taken as they are recorded.
    `record`: the fork's, but for where it begins; `None`: nothing is written. `measures`: how the contexts of model
    calls are built in the original and in the rerun; `None`: calls are not measured.
    """

    kernel: Kernel
    loaded: LoadedThread
    upto: int
    script: Script
    rules: ForkRules
    changed_types: frozenset[str]
    policy: CompactionPolicy
    applied: CompactionPolicy
    compactors: Sequence[Compactor] | None
    by_hand: bool
    record: ThreadRecord | None
    measures: tuple[Measure, Measure] | None


@define
class _Calls:
    """Model calls as they come by: of the original, and, once it goes its own way, of the rerun."""

    original: CallSeries
    fork: CallSeries


@define
class Rerun:
    """One rerun. Begin it at a state, give it the rows of the log that follow, in order, then `finish` it."""

    setting: Setting
    _draft: StateDraft
    _hash: bytes
    _runs: Runs
    _fork_runs: Runs
    counts: EventCounts = field(factory=EventCounts)
    refused: list[Refused] = field(factory=list)
    before: Compactions = Compactions()
    after: Compactions = Compactions()
    calls: _Calls | None = None
    shared_calls: int = 0
    log: ForkLog | None = None
    _last_call: State | None = None
    _places: Places = field(factory=Places)
    _compaction: Recompaction | None = None
    _cause: StoredEvent | None = None
    _made: int = 0
    _forgets: list[Targets] = field(factory=list)
    _reworded: Descent = field(factory=Descent)

    @classmethod
    def begin(cls, setting: Setting, state: State, digest: bytes) -> "Rerun":
        """After a state of the original, and the log's hash there. Earlier events are not read."""
        registry = setting.kernel.events
        run = cls(setting, state.draft(), digest, Runs(registry), Runs(registry))
        if setting.measures is not None:
            original, fork = setting.measures
            run.calls = _Calls(CallSeries(original), CallSeries(fork))
        if setting.compactors is not None:
            run._compaction = Recompaction(
                policy=setting.policy,
                compactors=setting.compactors,
                fallback=setting.kernel[CompactionService].fallback,
                by_hand=setting.by_hand,
                state=run._fork_state,
                append=run._append_own,
                new_id=run._new_id,
                mask=setting.kernel.mask,
            )
        return run

    def original_state(self) -> State:
        """The original's state after the last row read."""
        state = self._draft.freeze(self._draft.seq)
        self._draft = state.draft()
        return state

    def _fork_state(self) -> State:
        return self.original_state() if self.log is None else self.log.state

    async def step(self, stored: StoredEvent) -> None:
        """Go on by the next row of the original. Raises `ReducerError`, `InvalidChange`, `IntegrityError`."""
        setting = self.setting
        event, reduction = decode_row(setting.loaded.record.id, stored, setting.rules.events)
        if stored.seq == 1:
            await self._insert(0, stored)
        runs = evolve(self._runs)
        key, is_call = self._runs.next(event, str(stored.seq))
        if self.log is None and not self._stays(stored, event, is_call=is_call):
            self._diverge(runs)
        if self.log is None:
            self._share(stored, reduction, is_call=is_call)
            await self._where_due(stored)
        else:
            self.before = self.before.plus(event)
            if self.calls is not None:
                if is_call:
                    self.calls.original.call(key, stored.seq)
                if key:
                    self.calls.original.answer(key, sum(chunk.tokens for chunk in reduction.chunks))
                self.calls.original.step(reduction.operations, reduction.chunks, stored.seq)
            await self._again(stored, event, key)
            self._apply(stored, reduction)
        await self._insert(stored.seq, stored)
        if self.log is not None and self.log.is_full:
            await self.log.write()

    async def finish(self) -> ForkLog:
        """The fork's log, written where it is to be. Where nothing came out otherwise, it only shares the past."""
        if self.log is None:
            if self.setting.upto == 0:
                await self._insert(0, None)
            if self.log is None:
                self._diverge(self._runs)
        assert self.log is not None
        await self.log.write()
        return self.log

    # the shared past

    def _stays(self, stored: StoredEvent, event: Event | UnknownEvent, *, is_call: bool) -> bool:
        """Whether the event comes out unchanged, on the state that both share."""
        if self.setting.script.concerns(stored.seq):
            return False
        if self._compaction is not None:
            if stored.type in STEPS:
                return False
            if is_call and is_overdue(self._draft.tally, self.setting.policy):
                return False
        if stored.type not in self.setting.changed_types or isinstance(event, UnknownEvent):
            return True
        entries = self.setting.rules.reducers.of_type(stored.type)
        context = ReduceContext(stored.seq, stored.id, stored.recorded_at_us)
        try:
            reduction = reduce_into(self.original_state().draft(), entries, event, context, self._thread_id)
            return encode_reduction(reduction, event) == stored.record
        except ReducerError:
            return False

    def _share(self, stored: StoredEvent, reduction: Reduction, *, is_call: bool) -> None:
        if is_call:
            self.shared_calls += 1
            self._last_call = self.original_state()
        self._apply(stored, reduction)
        self._hash = stored.hash
        self._cause = stored

    async def _where_due(self, stored: StoredEvent) -> None:
        """Compact, and so go another way, where the thresholds ask for it and the original did not."""
        compaction = self._compaction
        if compaction is None or not compaction.is_due(self._draft.tally):
            return
        if compaction.due(self.original_state()) is not None:
            self._diverge(evolve(self._runs))
            await compaction.after_event(stored.recorded_at_us)

    def _apply(self, stored: StoredEvent, reduction: Reduction) -> None:
        apply_to_draft(self._draft, reduction.operations, reduction.chunks, seq=stored.seq)
        self._draft.touched.clear()

    def _diverge(self, runs: Runs) -> None:
        """From here on the rerun goes its own way."""
        setting, state = self.setting, self.original_state()
        self.counts.shared = state.seq
        loaded = setting.loaded
        origin = ForkOrigin(loaded.record, loaded.head, state, self._hash)
        self.log = ForkLog(setting.kernel, setting.rules, origin, setting.record)
        self._places = Places(state.seq)
        self._fork_runs = runs
        if self._compaction is not None:
            self._compaction.read_from(self.log.reader, self.log.thread_id)
        if self.calls is not None:
            self.calls.original.begin(state, self._last_call)
            self.calls.fork.begin(state, self._last_call, self.calls.original)

    # its own way

    async def _again(self, stored: StoredEvent, event: Event | UnknownEvent, key: str) -> None:
        """Append the event as it comes out in the rerun."""
        if self._compaction is not None and stored.type in STEPS:
            self._places.drop(stored.seq)
            self.counts.left_out += 1
            await self._where_asked(stored, event)
            return
        said, why = self._said(stored, event)
        fork_key = await self._called(said, str(stored.seq), key, stored)
        log = self._own
        self._places.put(stored.seq, log.head.seq + 1)
        version = renumbered(said, self._places, stored.seq)
        if isinstance(version, MemoryForget) and (self._compaction is not None or why == "replaced"):
            version = await self._widened(version)
        if why == "replaced":
            self._note_forget(version)
        self._check_undone(stored, version)
        if (reason := self._speaks_of_others(version)) and not why:
            step = self._refuse(stored, version, reason)
        else:
            step = self._append(stored, version, is_same=version is event, why=why)
        self._note_reworded(step, is_new=why == "replaced")
        self._answered(fork_key, step)
        self._cause = step.stored
        if self._compaction is not None:
            await self._compaction.after_event(stored.recorded_at_us)

    def _said(self, stored: StoredEvent, event: Event | UnknownEvent) -> tuple[Event, str]:
        """The replacement of an event, naming others by their old places, and its outcome."""
        script = self.setting.script
        if stored.seq in script.skipped:
            return _placeholder(stored, event, "skipped"), "skipped"
        replacement = script.replaced.get(stored.seq)
        if replacement is not None:
            return replacement, "replaced"
        if isinstance(event, UnknownEvent):
            why = "its type is not known here; give the plug-in that declares it, or skip it"
            raise InvalidChange(f"event {stored.seq} ({event.type}, version {event.version})", why)
        return event, ""

    def _append(self, stored: StoredEvent, event: Event, *, is_same: bool, why: str) -> Reduced:
        try:
            step = self._put(event, Envelope.of(stored), stored if is_same else None)
        except ReducerError as error:
            if self.setting.changed_types and stored.type not in STEPS:
                raise self._named(stored, error) from error
            return self._refuse(stored, event, error.why)
        self.counts.note(why or ("kept" if is_same else "renumbered"))
        self.after = self.after.plus(event)
        return step

    def _put(self, event: Event, envelope: Envelope, recorded: StoredEvent | None = None) -> Reduced:
        """Append to the rerun's log. Raises the errors of `ForkLog.append`; then nothing has changed."""
        step = self._own.append(event, envelope, recorded)
        if self.calls is not None:
            self.calls.fork.step(step.reduction.operations, step.reduction.chunks, step.stored.seq)
        return step

    def _refuse(self, stored: StoredEvent, event: Event, why: str) -> Reduced:
        self.refused.append(Refused(seq=stored.seq, event_type=stored.type, why=why))
        self.counts.note("refused")
        return self._put(_placeholder(stored, event, f"refused: {why}"), Envelope.of(stored))

    def _speaks_of_others(self, event: Event) -> str:
        """The reason why a recorded summary no longer fits: one of its chunks was replaced."""
        if not isinstance(event, CompactionCompleted):
            return ""
        covered = (chunk_id for replacement in event.replacements for chunk_id in replacement.covers)
        other = next((chunk_id for chunk_id in covered if self._reworded.has(chunk_id)), "")
        return f"chunk {other} says something else than what was summarised" if other else ""

    def _note_reworded(self, step: Reduced, *, is_new: bool) -> None:
        """Remember the chunks that hold an edit's replacement, and their later versions."""
        if is_new:
            self._reworded.chunks.update(chunk.id for chunk in step.reduction.chunks)
        else:
            self._reworded.follow(step.reduction.chunks)

    def _named(self, stored: StoredEvent, error: ReducerError) -> ReducerError:
        why = f"event {stored.seq}: {error.why}"
        return ReducerError(self._thread_id, stored.type, error.reducer, error.operation, why)

    async def _insert(self, after: int, there: StoredEvent | None) -> None:
        """The events that are inserted after a seq, at the time of the event that is `there`."""
        for n, new in enumerate(self.setting.script.inserted.get(after, ())):
            if self.log is None:
                self._diverge(evolve(self._runs))
            at_us = there.recorded_at_us if there is not None else self.setting.loaded.record.created_at_us
            key = await self._called(new.event, f"{after}.{n}", "", there)
            event = renumbered(new.event, self._places, 0)
            if isinstance(event, MemoryForget):
                event = await self._widened(event)
            self._note_forget(event)
            try:
                step = self._put(event, self._envelope(new, at_us))
            except ReducerError as error:
                raise InvalidChange(f"inserting a {event.event_type} after event {after}", error.why) from error
            self.counts.inserted += 1
            self.after = self.after.plus(event)
            self._answered(key, step)
            self._cause = step.stored
            if self._compaction is not None:
                await self._compaction.after_event(at_us)

    def _envelope(self, new: NewEvent, at_us: int) -> Envelope:
        return Envelope(
            id=new.id or self._new_id(),
            recorded_at_us=at_us,
            occurred_at_us=None if new.occurred_at is None else occurred_us(new.event, new.occurred_at),
            causation_id=new.causation_id,
            correlation_id=new.correlation_id,
        )

    # model calls

    async def _called(self, event: Event, key: str, answers: str, there: StoredEvent | None) -> str:
        """The key of the call that an event of the rerun answers; a new one is measured before it."""
        key, is_new = self._fork_runs.next(event, key, answers)
        if is_new:
            if self._compaction is not None and there is not None:
                await self._compaction.before_context(there.recorded_at_us)
            if self.calls is not None:
                self.calls.fork.call(key, self._own.head.seq + 1)
        return key

    def _answered(self, key: str, step: Reduced) -> None:
        if self.calls is not None and key:
            self.calls.fork.answer(key, sum(chunk.tokens for chunk in step.reduction.chunks))

    # forgetting

    async def _widened(self, event: MemoryForget) -> MemoryForget:
        """Add the versions and summaries of the forgotten chunks in this log, as `Thread.forget` finds them."""
        reader, thread_id = self._own.reader, self._own.thread_id
        told = await reader.ids_at(thread_id, event.origins())
        known = [chunk_id for chunk_id in event.chunk_ids if chunk_id.replace(".", "", 1).isdecimal()]
        versions, summaries = await reader.made_of(thread_id, known, event.seqs, told)
        widened = msgspec.structs.replace(
            event,
            chunk_ids=tuple(dict.fromkeys((*event.chunk_ids, *versions))),
            summaries=tuple(dict.fromkeys((*event.summaries, *summaries))),
        )
        return event if widened == event else widened

    def _note_forget(self, event: Event) -> None:
        if isinstance(event, MemoryForget):
            self._forgets.append(Targets(event))

    def _check_undone(self, stored: StoredEvent, event: Event) -> None:
        """Refuse an undoing that would bring back a chunk that the change forgets: its chunks are recorded with it."""
        if not isinstance(event, CompactionUndone | ThreadRereduced | ThreadRewound | SourceQuarantined):
            return
        for one in event.restored:
            ids = (one.original, *one.parent_ids)
            if any(targets.match(chunk_id) for targets in self._forgets for chunk_id in ids):
                why = f"it would bring back chunk {one.original}, which the change forgets; skip it too"
                raise InvalidChange(f"event {stored.seq} ({stored.type})", why)

    # compactions of its own

    async def _where_asked(self, stored: StoredEvent, event: Event | UnknownEvent) -> None:
        """Someone asked for a compaction here: by hand, or with a context over the hard limit."""
        if not isinstance(event, CompactionStarted) or self._compaction is None:
            return
        if event.trigger == "hard":
            await self._compaction.before_context(stored.recorded_at_us)
        elif event.trigger == "manual":
            everything = set(plan_manual(self.original_state(), self.setting.applied, None).chunk_ids)
            chosen = {self._places.chunk(chunk_id) for chunk_id in event.chunk_ids} - {""}
            await self._compaction.asked(None if everything == set(event.chunk_ids) else chosen, stored.recorded_at_us)

    async def _append_own(self, events: Sequence[Event]) -> Receipt:
        """Append events of a compaction's own; the last one's receipt."""
        return [self._append_one(event) for event in events][-1]

    def _append_one(self, event: Event) -> Receipt:
        """Append an event of a compaction's own; its cause is the event that it follows."""
        cause = self._cause
        envelope = Envelope(
            id=self._new_id(),
            recorded_at_us=cause.recorded_at_us if cause is not None else self.setting.loaded.record.created_at_us,
            causation_id=cause.id if cause is not None else "",
            correlation_id=cause.correlation_id if cause is not None else "",
        )
        step = self._put(event, envelope)
        self.counts.added += 1
        self.after = self.after.plus(event)
        state = self._own.state

        async def load(_generation: int, _seq: int) -> State:
            return state

        stored = step.stored
        return Receipt(
            thread_id=self._own.thread_id,
            seq=stored.seq,
            event_id=stored.id,
            hash=stored.hash.hex(),
            operations=step.reduction.operations,
            chunks=step.reduction.chunks,
            state=StateHandle(stored.seq, state, 0, load),
            recorded_at_us=stored.recorded_at_us,
        )

    def _new_id(self) -> str:
        """An id that follows from the log: the same change gives the same."""
        self._made += 1
        at_us = self._cause.recorded_at_us if self._cause is not None else self.setting.loaded.record.created_at_us
        seed = f"what-if/{self._thread_id}/{self._hash.hex()}/{self._made}"
        return uuid7(at_us // 1000, sha256(seed.encode()).digest()[:10])

    @property
    def _own(self) -> ForkLog:
        assert self.log is not None
        return self.log

    @property
    def _thread_id(self) -> str:
        return self.setting.loaded.record.id


def _placeholder(stored: StoredEvent, event: Event | UnknownEvent, why: str) -> Event:
    """The stand-in for an event. For a compaction's end it is an event with the reason of the abandoned compaction."""
    if isinstance(event, CompactionCompleted):
        return CompactionAbandoned(compaction_id=event.compaction_id, reason=f"what-if: {why}")
    return EventSkipped(skipped_type=stored.type, skipped_id=stored.id, reason=why)
