"""Copying a whole store into another one, of whatever back end: every thread with the same ids and hashes.

Recorded events are copied batch by batch, each with the rows of the state that it leads to: after every
commit a thread of the target holds a beginning of its log, and a copy that was cut off goes on from there. No reducer
runs. Data of several threads or for later work (facts on their way, unfinished acts) comes last,
when all its threads are there: an engine that opens the target in between has nothing to do in it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from attrs import define, field, frozen

from memory_engine.administration.acts import is_allowed, plan_of
from memory_engine.administration.erasing import ErasurePlan
from memory_engine.administration.holds import HOLD, RELEASE, in_force
from memory_engine.administration.proof import wiped
from memory_engine.core.aside import aside
from memory_engine.core.chain import apply_rows, decode_row, is_redacted, live_chunk, next_head, unreadable_marks
from memory_engine.core.events.memory import EventsErased
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.core.state import State
from memory_engine.core.threads import ARCHIVED, DamagedRecord, Head, ThreadRecord, generation_of
from memory_engine.errors import (
    ContentionError,
    CopyRefused,
    HeadMoved,
    IntegrityError,
    InvalidOperation,
    MemoryEngineError,
    StorageBusy,
    StorageFailed,
    ThreadExists,
    ThreadNotFound,
)
from memory_engine.projections.follower import ProjectionWorker
from memory_engine.replay.export.importer import at_rest
from memory_engine.replay.verify import Verifier
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.acts import DESTROYING, Act
from memory_engine.store.attested import PROJECTION as IMPORTED
from memory_engine.store.attested import VERSION as IMPORTED_VERSION
from memory_engine.store.broken import broken_of, mark_broken
from memory_engine.store.protocol import CommitUnit, ProjectionChange, ThreadFilter
from memory_engine.store.reader import PAGE

CopyProgress = Callable[[str, int, int], None]
"""Called with what is done (`copying`, then `verifying`), and the threads and the events of which it is done."""

_OF_THE_TARGET = (StorageBusy, StorageFailed, ContentionError)
"""Errors that no other thread would be spared: they end the copy, which goes on when it is begun again."""


@frozen(kw_only=True)
class CopyReport(JsonForm):
    """The outcome of a copy: the `threads` now whole at the target, with their `events`; `added` came this time.

    `known` threads were whole before. `deleted` counts ids whose threads are deleted, `acts` the administrative acts
    copied. `failed` gives the reason for each thread that could not be copied whole, `diverged` names those that
    `verify` found wrong at the target.
    """

    threads: int
    events: int
    added: int
    known: int
    deleted: int
    acts: int
    failed: Mapping[str, str]
    diverged: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all of the source is there, and intact."""
        return not self.failed and not self.diverged


async def copy_store(source: Kernel, target: Kernel, progress: CopyProgress | None = None) -> CopyReport:
    """Copy every thread of a store; see `Engine.copy_to`."""
    target.check_writable("a copy")
    return await _Copy(source, target, progress or _nobody).run()


@define
class _Copy:
    """One attempt. Nothing of it need be remembered: what is there says how far it is."""

    _source: Kernel
    _target: Kernel
    _progress: CopyProgress
    _heads: dict[str, Head] = field(factory=dict)
    _failed: dict[str, str] = field(factory=dict)
    _added: int = 0
    _known: int = 0
    _events: int = 0

    async def run(self) -> CopyReport:
        threads = await self._source.store.threads(ThreadFilter())
        taken = await self._source.store.taken()
        await self._check_target({record.id: (record, head) for record, head in threads}, frozenset(taken))
        for record, head in threads:
            await self._one(record, head)
        deleted = await self._take_ids(taken)
        if not self._failed:
            await self._bring_rows()
        acts = await self._bring_acts()
        return CopyReport(
            threads=len(self._heads),
            events=self._events,
            added=self._added,
            known=self._known,
            deleted=deleted,
            acts=acts,
            failed=self._failed,
            diverged=await self._verified(),
        )

    # what is there

    async def _check_target(self, threads: Mapping[str, tuple[ThreadRecord, Head]], taken: frozenset[str]) -> None:
        """Raise `CopyRefused` unless the target holds beginnings of these logs, or goes on from them."""
        store = self._target.store
        for thread_id in await store.taken():
            if thread_id in threads and not generation_of(threads[thread_id][1]):  # else it was deleted here too
                raise CopyRefused(thread_id, "it was deleted there; copy to a new store")
        for record, head in await store.threads(ThreadFilter()):
            if record.id not in threads:
                if head.seq or record.id not in taken:
                    raise CopyRefused(
                        record.id, "the source has no such thread; delete it there, or copy to a new store"
                    )
                continue  # a copy that was cut off had begun to take its id
            origin, there = threads[record.id]
            seq = min(head.seq, there.seq)
            if record.forked_from != origin.forked_from or not await self._agree(record.id, seq):
                raise CopyRefused(record.id, "it has another log there than in the source; copy to a new store")

    async def _agree(self, thread_id: str, seq: int) -> bool:
        """Whether both logs are the same up to a seq: its hash binds all before it."""
        if not seq:
            return True
        [there] = await self._target.store.read_at(thread_id, [seq])
        try:
            [here] = await self._source.store.read_at(thread_id, [seq])
        except IntegrityError:  # that thread will be named as failed
            return True
        return here.hash == there.hash

    # threads

    async def _one(self, record: ThreadRecord, head: Head) -> None:
        """Copy a thread, or say why not, and mark what there is of it at the target as broken."""
        try:
            await self._tried(record, head)
        except _OF_THE_TARGET:
            raise
        except ThreadNotFound as error:
            if error.thread_id == record.id and not await self._source.store.threads(ThreadFilter(id=record.id)):
                return  # deleted in the source since it was listed
            self._failed[record.id] = str(error)
        except (MemoryEngineError, InvalidOperation) as error:
            self._failed[record.id] = str(error)
            if await self._target.store.threads(ThreadFilter(id=record.id)):
                at = error.seq if isinstance(error, IntegrityError) else 0
                why = f"it was not copied whole: {error.why if isinstance(error, IntegrityError) else error}"
                await self._target[OpenThreads].note(record.id, IntegrityError(record.id, at, why))
        else:
            self._heads[record.id] = head
            self._events += head.seq
        self._tell("copying")

    async def _tried(self, record: ThreadRecord, head: Head) -> None:
        if isinstance(record, DamagedRecord):
            why = f"its record cannot be read ({'; '.join(record.unreadable)}): run `memory-engine rebuild`"
            raise IntegrityError(record.id, 0, why)
        if head.unreadable:
            raise unreadable_marks(record.id, head)
        tries = self._target.config.commit_tries_max
        for _ in range(tries):
            try:
                await at_rest(self._target, record.id, lambda: self._thread(record, head))
                return
            except HeadMoved:  # another writes to the thread: perhaps another copy of the same store
                continue
        raise ContentionError(record.id, tries)

    async def _thread(self, record: ThreadRecord, head: Head) -> None:
        """Bring what the target lacks of a thread."""
        store = self._target.store
        is_new = not await store.threads(ThreadFilter(id=record.id))
        there = await self._made(record) if is_new else await store.head(record.id)
        known = not is_new and there.seq >= head.seq and (head.status != ARCHIVED or there.status == ARCHIVED)
        upto, imported = await self._source.store.rows(IMPORTED, IMPORTED_VERSION, record.id)
        if imported:  # first: the file vouches for the rows that came without their texts
            await store.write_projection(record.id, ProjectionChange(IMPORTED, IMPORTED_VERSION, imported, upto))
        there = await self._bring_events(record.id, there, head)
        [(kept, _)] = await store.threads(ThreadFilter(id=record.id))
        is_as_here = (kept.metadata, kept.policy, there.status) == (record.metadata, record.policy, head.status)
        if there.seq == head.seq and not is_as_here:
            moved = msgspec.structs.replace(there, status=head.status, epoch=there.epoch + 1)
            await store.commit(CommitUnit(thread_id=record.id, expected=there, head=moved, record=record))
        await mark_broken(store, await broken_of(self._source.store, record.id), record.id)
        self._target[ProjectionWorker].touched(record.id)
        self._known += known

    async def _bring_events(self, thread_id: str, there: Head, head: Head) -> Head:
        """Bring the events up to a head; the target's then. Raises `IntegrityError`, once it has those before it."""
        store, reader = self._target.store, self._source.reader
        upto, broken = head.seq, None
        state = await reader.state_at(thread_id, min(there.seq, head.seq))
        while there.seq < upto:
            page: list[StoredEvent] = []
            try:
                async for some in reader.pages(thread_id, after=there.seq, upto=min(upto, there.seq + PAGE)):
                    page += some
                unit, state = await aside(partial(self._unit, thread_id, there, page, state, head), items=len(page))
            except IntegrityError as error:
                if not there.seq < error.seq - 1 < upto:
                    raise
                upto, broken = error.seq - 1, error
                continue
            erased = await self._erased_since(thread_id, there.seq, page)
            await (store.erase(unit, erased) if erased else store.commit(unit))
            self._added += len(page)
            there = unit.head
            self._tell("copying", there.seq)
        if broken is not None:
            raise broken
        return there

    async def _made(self, record: ThreadRecord) -> Head:
        """The head of a thread that is made at the target."""
        store = self._target.store
        try:
            await self._make(record)
        except ThreadExists:
            raise HeadMoved from None  # since a moment ago
        return await store.head(record.id)

    async def _make(self, record: ThreadRecord) -> None:
        store, origin = self._target.store, record.forked_from
        if origin is None:
            await store.create(record, Head(), ())
            return
        start = Head()
        with suppress(ThreadNotFound):
            start = await store.head(origin.thread_id)
        if start.seq < origin.seq:
            why = f"thread {origin.thread_id!r}, whose past it shares, was not copied that far"
            raise IntegrityError(record.id, origin.seq, why)
        rows = await store.read_at(origin.thread_id, [origin.seq] if origin.seq else [])
        state = await self._source.reader.state_at(origin.thread_id, origin.seq)
        head = Head(
            seq=origin.seq,
            hash=rows[0].hash if rows else b"",
            chunks=state.tally.chunks,
            tokens=state.tally.tokens,
            marks={name: min(mark, origin.seq) for name, mark in start.marks.items()},
        )
        await store.create(record, head, [row for placed in state.placed() if (row := live_chunk(placed)) is not None])

    def _unit(
        self, thread_id: str, there: Head, page: Sequence[StoredEvent], state: State, last: Head
    ) -> tuple[CommitUnit, State]:
        """The commit of a page after a head, and the state that it leads to."""
        draft = state.draft()
        apply_rows(draft, page, thread_id, None)
        live = {chunk_id: live_chunk(placed) for chunk_id, placed in draft.touched.items()}
        state = draft.freeze(draft.seq)
        events, moved = self._target.events, there
        known = frozenset(cls.event_type for cls in events.classes())
        for row in page:  # a type that this process does not know may be a tracked one
            moved = next_head(moved, row, state.tally, tracked=events.tracks(row.type) or row.type not in known)
        if moved.seq == last.seq:
            marks = {name: max(mark, moved.marks.get(name, 0)) for name, mark in last.marks.items()}
            moved = msgspec.structs.replace(moved, status=last.status, marks={**moved.marks, **marks})
        return CommitUnit(thread_id=thread_id, expected=there, head=moved, events=page, live=live), state

    async def _erased_since(self, thread_id: str, upto: int, page: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """The stand-ins of events that were copied up to a seq before the source erased their texts."""
        seqs: set[int] = set()
        for stored in page:
            if stored.type == EventsErased.event_type:
                event, _ = decode_row(thread_id, stored, self._source.events)
                if isinstance(event, EventsErased):
                    seqs.update(row.seq for row in event.rows if row.seq <= upto)
        if not seqs:
            return ()
        whole = {row.seq for row in await self._target.store.read_at(thread_id, sorted(seqs)) if not is_redacted(row)}
        rows = await self._source.reader.rows_at(thread_id, whole)
        return [row for row in rows.values() if is_redacted(row)]

    # what comes last

    async def _take_ids(self, taken: Sequence[str]) -> int:
        """Let deleted threads be known as deleted at the target too; how many there are."""
        store = self._target.store
        there = frozenset(await store.taken())
        for thread_id in taken:
            if thread_id not in there:
                if not await store.threads(ThreadFilter(id=thread_id)):
                    await store.create(ThreadRecord(id=thread_id), Head(), ())
                await store.delete(thread_id)
        return len(taken)

    async def _bring_rows(self) -> None:
        """Bring the rows of views that are folded with each commit: those of facts on their way among them."""
        for projection in self._target.projections:
            if projection.mode == "async":
                continue
            for thread_id in await self._source.store.holders(projection.name, projection.version):
                head = self._heads.get(thread_id)
                if head is not None:
                    key = (projection.name, projection.version, thread_id)
                    upto, rows = await self._source.store.rows(*key)
                    if await self._target.store.checkpoint(*key) < upto <= head.seq:
                        change = ProjectionChange(projection.name, projection.version, rows, upto)
                        await self._write_rows(thread_id, change)

    async def _write_rows(self, thread_id: str, change: ProjectionChange) -> None:
        await at_rest(
            self._target, thread_id, lambda: self._target.store.write_projection(thread_id, change, replace=True)
        )

    async def _bring_acts(self) -> int:
        """Bring acts and holds; how many came. One that is not finished waits until all threads are there."""
        there = {act.id: act for act in await self._target.store.acts()}
        lacking = [
            act
            for act in await self._acts()
            if (act.id not in there or act.done_at_us > there[act.id].done_at_us == 0)
            and (act.done_at_us or not self._failed)
        ]
        if any(act.kind in DESTROYING for act in lacking):  # what a retention destroyed are acts of their own
            await wiped(self._target, "copy")
        for act in lacking:
            await self._target.store.put_act(act)
        return len(lacking)

    async def _acts(self) -> list[Act]:
        """The source's acts, but those beyond what whoever asked for them may reach: at the target they are ours."""
        store = self._source.store
        acts = await store.acts()
        holding = {act.id for act in await in_force(store, acts)}
        return [act for act in acts if act.tenants is None or act.id in holding or await self._may_come(act)]

    async def _may_come(self, act: Act) -> bool:
        if act.kind not in DESTROYING:
            return act.kind not in (HOLD, RELEASE) and act.done_at_us > 0
        plan = plan_of(act, ErasurePlan)
        return plan is not None and await is_allowed(self._source.store, act, (*plan.events, *plan.threads))

    async def _verified(self) -> tuple[str, ...]:
        """The threads that do not hold together at the target, or have another hash there."""
        diverged: list[str] = []
        done, verifier = 0, Verifier.of(self._target)
        for n, (thread_id, head) in enumerate(self._heads.items()):
            report = await verifier.verify(thread_id, partial(self._verifying, n, done))
            done += report.events
            if report.ok or report.broken is not None:
                await self._target[OpenThreads].note(thread_id, report.broken)
            rows = await self._target.store.read_at(thread_id, [head.seq] if head.seq else [])
            if not report.ok or [row.hash for row in rows] != ([head.hash] if head.seq else []):
                diverged.append(thread_id)
            self._progress("verifying", n + 1, done)
        return tuple(diverged)

    def _verifying(self, threads: int, before: int, events: int) -> None:
        self._progress("verifying", threads, before + events)

    def _tell(self, what: str, further: int = 0) -> None:
        self._progress(what, len(self._heads), self._events + further)


def _nobody(_what: str, _threads: int, _events: int) -> None:
    """Hears of no progress."""
