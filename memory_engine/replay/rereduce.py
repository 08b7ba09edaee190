"""Reduce a thread's events again: the results of today's reducers, as one event that leads there and can be undone.

The recorded operations make a state, and no operation is ever rewritten. If a reducer was missing
or wrong, the log is mended as anything in it changes: by an event. It holds the chunks that come and the ids of those
go, worked out from two states: the present one, and the one that today's reducers give.
"""

import msgspec
from attrs import define, field, frozen

from memory_engine.compaction.history import read_aftermath
from memory_engine.compaction.service import CompactionService
from memory_engine.compaction.undo import restored_chunks
from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_row, is_redacted
from memory_engine.core.chunks import Chunk
from memory_engine.core.codec import encode_reduction
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import MendedEvent, ThreadRereduced
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import NewEvent, Receipt, StoredEvent
from memory_engine.core.reduction import ReduceContext, reduce_into
from memory_engine.core.state import State
from memory_engine.errors import CannotRereduce, MemoryEngineError, SeqNotInLog
from memory_engine.replay.differences import records_differ
from memory_engine.replay.mendings import mendings, record_digest
from memory_engine.replay.transition import Transition
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime


class Mended(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """An event that today's reducers reduce to something else, and how: a line for each difference."""

    seq: int
    type: str
    difference: tuple[str, ...]


class RereduceReport(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """The differences that rereducing the events after `from_seq` makes to the state after event `upto`.

    `seq` is the event that recorded it; 0: none did, it was a dry run. `removed` chunks go, `added` ones come; they
    have the ids that they would have had, and the event gives them new ones, which lead back to these.
    """

    thread_id: str
    from_seq: int
    upto: int
    seq: int
    mended: tuple[Mended, ...]
    removed: tuple[Chunk, ...]
    added: tuple[Chunk, ...]


@frozen
class _Rereduction:
    """The event, and the report for people."""

    event: ThreadRereduced
    report: RereduceReport


async def rereduce(thread: ThreadHandle, from_seq: int, *, dry_run: bool, reason: str) -> RereduceReport:
    """See `Replay.rereduce`."""
    kernel = thread.kernel
    if dry_run:
        return (await _rereduction_event(kernel, thread.id, await thread.state(), from_seq, reason)).report
    kernel.check_writable("reducing events anew")
    runtime = await thread.runtime()
    made: list[_Rereduction] = []

    async def make() -> NewEvent:
        made.append(await _rereduction_event(kernel, thread.id, runtime.state, from_seq, reason))
        return NewEvent(made[-1].event)

    receipt = await kernel[CompactionService].commit(runtime, make)
    return msgspec.structs.replace(made[-1].report, seq=receipt.seq)


async def _rereduction_event(kernel: Kernel, thread_id: str, now: State, from_seq: int, reason: str) -> _Rereduction:
    """The event that leads from a state to the one that today's reducers give. Raises `CannotRereduce`."""
    if type(from_seq) is not int or not 1 <= from_seq <= now.seq:
        raise SeqNotInLog(thread_id, from_seq, now.seq)
    run = await _Mending.begin(kernel, thread_id, from_seq)
    await kernel.reader.walk(thread_id, after=from_seq - 1, upto=now.seq).feed(run.step)
    found = Transition(now, run.wanted, run.aliases)
    restored, removed = await aside(lambda: (tuple(found.restored()), tuple(found.removed())), items=len(now))
    if not (restored or removed):
        why = "their reducers still give the state that stands" if not run.mended else "the state comes out the same"
        raise CannotRereduce(thread_id, from_seq, f"nothing differs: {why}")
    event = ThreadRereduced(
        from_seq=from_seq,
        restored=restored,
        removed=removed,
        mended=tuple(run.digests),
        reason=reason,
        seen=now.seq,
    )
    taken = [chunk for chunk_id in removed if (chunk := now.get(chunk_id)) is not None]
    added = [chunk for one in restored if (chunk := run.wanted.get(one.original)) is not None]
    report = RereduceReport(
        thread_id=thread_id,
        from_seq=from_seq,
        upto=now.seq,
        seq=0,
        mended=tuple(run.mended),
        removed=tuple(taken),
        added=tuple(added),
    )
    return _Rereduction(event, report)


@define
class _Mending:
    """The log from a seq on, recorded and with the results of today's reducers."""

    kernel: Kernel
    thread_id: str
    from_seq: int
    recorded: State
    wanted: State
    mended: list[Mended] = field(factory=list)
    digests: list[MendedEvent] = field(factory=list)
    aliases: dict[str, str] = field(factory=dict)
    """The chunks that an earlier mending brought, by the ids that they have here."""

    @classmethod
    async def begin(cls, kernel: Kernel, thread_id: str, from_seq: int) -> "_Mending":
        """Both begin with the same state."""
        state = await kernel.reader.state_at(thread_id, from_seq - 1)
        return cls(kernel, thread_id, from_seq, state, state)

    def step(self, stored: StoredEvent) -> None:
        """Go on by one event. Raises `CannotRereduce` where today's reducers cannot take it."""
        if is_redacted(stored):
            raise self._refused(stored, "its texts were taken out, so it cannot be reduced again")
        event, reduction = decode_row(self.thread_id, stored, self.kernel.events)
        if not isinstance(event, Event):
            raise self._refused(stored, f"version {stored.version} of {stored.type} is not known: open its plug-in")
        before = self.recorded
        draft = before.draft()
        apply_to_draft(draft, reduction.operations, reduction.chunks, seq=stored.seq)
        self.recorded = draft.freeze(stored.seq)
        if isinstance(event, ThreadRereduced):
            self._pass_over(stored, event)
            return
        record, _ = self._reduced(stored, event, before)
        if record != stored.record:
            self.mended.append(
                Mended(seq=stored.seq, type=stored.type, difference=records_differ(stored.record, record, event))
            )
            self.digests.append(MendedEvent(stored.seq, record_digest(stored.record), record_digest(record)))
        _, self.wanted = self._reduced(stored, event, self.wanted)

    def _reduced(self, stored: StoredEvent, event: Event, state: State) -> tuple[bytes, State]:
        draft = state.draft()
        context = ReduceContext(stored.seq, stored.id, stored.recorded_at_us)
        entries = self.kernel.reducers.of_type(stored.type)
        try:
            reduction = reduce_into(draft, entries, event, context, self.thread_id)
        except MemoryEngineError as error:
            raise self._refused(stored, str(error)) from error
        return encode_reduction(reduction, event), draft.freeze(stored.seq)

    def _pass_over(self, stored: StoredEvent, event: ThreadRereduced) -> None:
        """An earlier mending: what it mended is reduced here, and its chunks are these."""
        if event.from_seq < self.from_seq:
            raise self._refused(stored, f"it mended events from {event.from_seq} on: begin there, or after it")
        self.aliases.update((one.original, f"{stored.seq}.{n}") for n, one in enumerate(event.restored))
        self.wanted = self.wanted.draft().freeze(stored.seq)

    def _refused(self, stored: StoredEvent, why: str) -> CannotRereduce:
        return CannotRereduce(self.thread_id, self.from_seq, f"event {stored.seq} ({stored.type}): {why}")


# undoing it


async def undo_rereduce(thread: ThreadHandle, *, reason: str) -> Receipt:
    """See `Replay.undo_rereduce`."""
    kernel = thread.kernel
    kernel.check_writable("undoing")
    runtime = await thread.runtime()

    async def make() -> NewEvent:
        return NewEvent(await _undoing(kernel, runtime, reason))

    return await kernel[CompactionService].commit(runtime, make)


async def _undoing(kernel: Kernel, runtime: ThreadRuntime, reason: str) -> ThreadRereduced:
    """The event that undoes the latest mending in effect. Raises `CannotRereduce`."""
    now = runtime.state
    standing = await mendings(kernel.reader, runtime.id, now.seq)
    if not standing:
        raise CannotRereduce(runtime.id, 0, "nothing was reduced anew that is not undone")
    stored, event = standing[-1]
    before = await kernel.reader.state_at(runtime.id, stored.seq - 1)
    aftermath = await read_aftermath(kernel.reader, runtime.id, now, after=stored.seq)
    brought = [aftermath.fate(f"{stored.seq}.{n}") for n in range(len(event.restored))]
    covered = [fate for fate in brought if fate.status == "covered"]
    if covered:
        why = f"event {covered[0].seq} covers what it brought: undo that compaction first"
        raise CannotRereduce(runtime.id, event.from_seq, why)
    came = {fate.chunk_id for fate in brought if fate.status == "live"}
    goes = [place for place in now.placed() if place.chunk.id in came and place.container not in came]
    left = now.draft()
    for place in goes:
        left.remove(place)
    aftermath = msgspec.structs.replace(aftermath, state=left.freeze(now.seq))
    return ThreadRereduced(
        from_seq=event.from_seq,
        restored=restored_chunks(before, aftermath, dict.fromkeys(event.removed, "")),
        removed=tuple(place.chunk.id for place in goes),
        undoes=stored.seq,
        reason=reason,
        seen=now.seq,
    )
