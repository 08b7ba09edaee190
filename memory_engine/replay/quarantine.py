"""Quarantine a source: what rests on it is hidden, here and in other threads, until it is released.

One event of this thread records it. It names the events that are hidden, by their ids, as `FactsRewound` does, so all
views and the search are made of the others; and it brings the chunks that lead from the present state to one without
the hidden ones. Facts that went to other threads are hidden through the outbox. Threads that recalled any of it record
an event of the same type, with what they made of it.

What comes from the source later is hidden by a further event, before the next context is made (`QuarantineKeeper`).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from weakref import WeakValueDictionary

import msgspec
from attrs import field, frozen

from memory_engine.compaction.service import CompactionService
from memory_engine.core import excerpts
from memory_engine.core.arguments import checked_flag, checked_text
from memory_engine.core.chain import decode_event
from memory_engine.core.chunks import Chunk
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.compaction import RewindReach, SourceQuarantined
from memory_engine.core.events.delivery import Destination
from memory_engine.core.json_form import JsonForm
from memory_engine.core.quarantine import Quarantined, QuarantineSource, Reliance
from memory_engine.core.records import NewEvent
from memory_engine.core.state import State
from memory_engine.errors import (
    CannotQuarantine,
    EngineClosed,
    InvalidArgument,
    MemoryEngineError,
    ThreadClosed,
    ThreadNotFound,
)
from memory_engine.replay.rewind import TEXT_CHARS, LearnedElsewhere, facts_of
from memory_engine.replay.withheld import TYPE, Withheld, note_events, relying_on, standing_in
from memory_engine.runtime import recalled
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.scoped import scope_of
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter
from memory_engine.store.reader import seq_of

KEPT_MAX = 256
"""Threads of which a keeper remembers what rests on their sources."""


class Quarantine(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """A quarantine in force: its source, who began it, when and why, and the number of events that it hides here.

    `of` is the thread whose source it is; empty: this one.
    """

    source: str
    since: datetime
    seq: int
    by: str
    reason: str
    events: int
    of: str = ""


class QuarantineReport(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a quarantine or of a release. `seq` is the event that recorded it; 0: none did.

    `hidden` are the events that leave the views and the search, here and in other threads, and `shown` those that come
    back. `removed` chunks leave the context; `restored` ones come back, or come in the place of a summary that covers
    something hidden. `answers` are the agent's responses after it had read something hidden: they stay.
    """

    thread_id: str
    source: str
    seq: int
    hidden: tuple[LearnedElsewhere, ...]
    shown: tuple[LearnedElsewhere, ...]
    removed: tuple[Chunk, ...]
    restored: tuple[Chunk, ...]
    answers: tuple[LearnedElsewhere, ...]


async def quarantine(  # noqa: PLR0913 - those of `Admin.quarantine`
    thread: ThreadHandle, source: str, *, release: bool, dry_run: bool, by: str, reason: str
) -> QuarantineReport:
    """See `Admin.quarantine`."""
    checked_flag("release", release)
    checked_flag("dry_run", dry_run)
    return await _Act(thread.kernel, thread, await _named(thread, source), release, by, reason, dry_run).run()


async def quarantines(thread: ThreadHandle) -> tuple[Quarantine, ...]:
    """See `Admin.quarantines`."""
    if not await thread.exists():
        return ()
    known = await standing_in(thread.kernel, thread.id, await thread.upto(None))
    rows = await thread.kernel.reader.rows_at(thread.id, [one.seqs[0] for one in known.values()])
    return tuple(
        Quarantine(
            source=one.source,
            since=to_datetime(rows[one.seqs[0]].recorded_at_us),
            seq=one.seqs[0],
            by=one.by,
            reason=one.reason,
            events=len(one.hidden),
            of=one.of,
        )
        for one in known.values()
    )


async def _named(thread: ThreadHandle, source: str) -> str:
    """A source as it is recorded: an event by its id. Raises `InvalidArgument`, and what `seq_of` raises."""
    try:
        found = QuarantineSource.of(source)
    except ValueError as error:
        raise InvalidArgument("source", source, str(error)) from None
    if found.kind != "event":
        return str(found)
    moment = int(found.name) if found.name.isdecimal() else found.name
    seq = await seq_of(thread.kernel.store, thread.id, moment)
    (event_id,) = await thread.kernel.reader.ids_at(thread.id, [seq]) or [""]
    if not event_id:
        raise InvalidArgument("source", source, "there is no event before the first one")
    return f"event:{event_id}"


@frozen
class _Act:
    """A quarantine of a source of one thread, or its release."""

    kernel: Kernel
    thread: ThreadHandle
    source: str
    ends: bool
    by: str = ""
    reason: str = ""
    dry_run: bool = False
    made: list[tuple[str, Withheld]] = field(factory=list, init=False)
    """What other threads have recorded."""

    async def run(self) -> QuarantineReport:
        """Do it, or only report it."""
        checked_text("by", self.by)
        checked_text("reason", self.reason)
        if not self.dry_run:
            self.kernel.check_writable("a release" if self.ends else "a quarantine")
        state = await self.thread.state()
        change = await self._change(self.thread.id, state, "")
        others = await self._others(change)
        if await self._is_known() and not change and not await self._any_left(others):
            raise CannotQuarantine(self.thread.id, self.source, "released" if self.ends else "quarantined")
        if self.dry_run:
            for thread_id, ids in others.items():
                there = ThreadHandle(self.kernel, thread_id)
                if await there.exists():
                    change_there = await self._change(thread_id, await there.state(), self.thread.id, ids)
                    self.made.append((thread_id, change_there))
            return await self._report(0, state, change)
        async with self.kernel[QuarantineKeeper].acting(self.thread.id):
            seq, state, change = await self._record_everywhere()
        return await self._report(seq, state, change)

    async def _record_everywhere(self) -> tuple[int, State, Withheld]:
        """Record it here and where it leads; an error of another thread is raised at the end."""
        errors: list[MemoryEngineError] = []
        async with self.kernel[Relay].attended(self.thread.id):
            seq, state, change = await self._record_own()
            try:
                await self.kernel[Relay].deliver(self.thread.id)
            except MemoryEngineError as error:
                errors.append(error)
            errors += await self._spread(await self._others(change))
        if errors:
            raise errors[0]
        return seq, state, change

    async def _record_own(self) -> tuple[int, State, Withheld]:
        """Record it in the thread itself, unless it is there already and changes nothing."""
        runtime = await self.thread.runtime()
        made: list[tuple[State, Withheld, tuple[RewindReach, ...]]] = []

        async def make() -> NewEvent:
            change = await self._change(self.thread.id, runtime.state, "")
            made.append((runtime.state, change, await self._reach(change)))
            return NewEvent(self._event(change, runtime.state, "", made[-1][2]))

        async with self.kernel[QuarantineKeeper].recording(self.thread.id):
            if await self._is_known() and not await self._change(self.thread.id, runtime.state, ""):
                return 0, runtime.state, Withheld()
            seq = (await self.kernel[CompactionService].commit(runtime, make)).seq
        state, change, reach = made[-1]
        for one in reach:
            self.made.append((scope_of(self.kernel, one.destination).id, Withheld(one.hidden, one.shown)))
        return seq, state, change

    async def _is_known(self) -> bool:
        """Whether the source is quarantined, or released, in the thread already."""
        return ((self.source, "") in await standing_in(self.kernel, self.thread.id)) is not self.ends

    def _event(self, change: Withheld, state: State, of: str, reach: tuple[RewindReach, ...] = ()) -> SourceQuarantined:
        return SourceQuarantined(
            source=self.source,
            hidden=change.hidden,
            shown=change.shown,
            restored=change.restored,
            removed=change.removed,
            reach=reach,
            ends=self.ends,
            own=not of,
            of=of or self.thread.id,
            by=self.by,
            reason=self.reason,
            seen=state.seq,
        )

    async def _change(self, thread_id: str, now: State, of: str, ids: Collection[str] = ()) -> Withheld:
        """Return the change that a thread records. Its events `ids` hold copies of what the thread `of` hides."""
        standing = await standing_in(self.kernel, thread_id)
        held = standing.pop((self.source, of), None)
        if self.ends:
            if held is None:
                return Withheld()
            return await Withheld.showing(self.kernel, thread_id, now, held, standing.values())
        known = held.hidden if held is not None else frozenset[str]()
        held = Quarantined(self.source, of, (), known.union(ids), self.by, self.reason)
        return await Withheld.hiding(self.kernel, thread_id, now, held, known)

    async def follow(self, of: str) -> None:
        """Hide what rests on it since, in the thread; of its own, in others, too."""
        if of:
            await self._record_there(self.thread, (), of)
            return
        await self._record_everywhere()

    # other threads

    async def _reach(self, change: Withheld) -> tuple[RewindReach, ...]:
        """The threads that facts of these events went to, with what rests on them there."""
        ids = frozenset(change.shown if self.ends else change.hidden)
        reach: dict[Destination, list[str]] = {}
        for fact in await facts_of(self.kernel, self.thread.id):
            if fact.event_id in ids:
                reach.setdefault(fact.destination, []).append(fact.arrival)
        found = []
        for destination, arrivals in reach.items():
            target = scope_of(self.kernel, destination).id
            if target == self.thread.id:
                continue
            if self.ends:
                there = await self._change_there(target)
                if there is not None and not (there.removed or there.restored):
                    found.append(RewindReach(destination, shown=there.shown))
            else:
                found.append(RewindReach(destination, hidden=await self._resting(target, arrivals)))
        return tuple(found)

    async def _change_there(self, target: str) -> Withheld | None:
        """What a thread has to record at a release; `None` for one that holds nothing of this quarantine."""
        try:
            if (self.source, self.thread.id) not in await standing_in(self.kernel, target):
                return None
            return await self._change(target, await ThreadHandle(self.kernel, target).state(), self.thread.id)
        except ThreadNotFound:
            return None

    async def _resting(self, target: str, ids: Sequence[str]) -> tuple[str, ...]:
        """These events of a thread, and all that rests on them there."""
        try:
            holding = Quarantined(self.source, self.thread.id, (), frozenset(ids), "", "")
            found = await relying_on(self.kernel, target, [holding])
        except ThreadNotFound:  # nothing has arrived there yet
            return tuple(ids)
        return tuple(dict.fromkeys((*ids, *found.hidden)))

    async def _others(self, change: Withheld) -> dict[str, set[str]]:
        """The other threads that hold facts or copies of hidden events, or of what they made of these in turn."""
        if self.ends:
            return {other: set() for other in await self._holding()}
        standing = (await standing_in(self.kernel, self.thread.id)).get((self.source, ""))
        known = standing.hidden if standing is not None else frozenset[str]()
        found = {self.thread.id: {*change.hidden, *known}}
        waiting = [self.thread.id]
        while waiting:
            thread_id = waiting.pop()
            async for other, ids in self._received(thread_id, found[thread_id]):
                new = {*await self._resting(other, ids)} - found.get(other, set())
                if new:
                    found.setdefault(other, set()).update(new)
                    waiting.append(other)
        own = found.pop(self.thread.id)
        return {other: ids for other, ids in found.items() if ids and own}

    async def _received(self, thread_id: str, ids: Collection[str]) -> AsyncIterator[tuple[str, list[str]]]:
        """The threads that got facts of these events, or recalled them: the ids that they have there."""
        arrived: dict[str, list[str]] = {}
        for fact in await facts_of(self.kernel, thread_id):
            if fact.event_id in ids:
                arrived.setdefault(scope_of(self.kernel, fact.destination).id, []).append(fact.arrival)
        for target, arrivals in arrived.items():
            yield target, arrivals
        drop = not self.dry_run
        for other, copies in (await recalled.elsewhere(self.kernel, thread_id, ids, drop=drop)).items():
            yield other, copies

    async def _holding(self) -> list[str]:
        """The other threads in which this quarantine is in force."""
        ((record, _),) = await self.kernel.store.threads(ThreadFilter(id=self.thread.id))
        found = []
        for other, head in await self.kernel.store.threads(ThreadFilter(tenant_id=record.tenant_id)):
            if other.id != self.thread.id and TYPE in head.marks:
                standing = await standing_in(self.kernel, other.id)
                found += [other.id] if (self.source, self.thread.id) in standing else []
        return found

    async def _any_left(self, others: Mapping[str, set[str]]) -> bool:
        """Whether any other thread has something to record: an earlier attempt did not come to its end."""
        for thread_id, ids in others.items():
            if self.ends or await self._is_left(thread_id, ids):
                return True
        return False

    async def _is_left(self, thread_id: str, ids: Collection[str]) -> bool:
        there = ThreadHandle(self.kernel, thread_id)
        return await there.exists() and bool(await self._change(thread_id, await there.state(), self.thread.id, ids))

    async def _spread(self, others: Mapping[str, set[str]]) -> list[MemoryEngineError]:
        """Record it in other threads that hold copies, or chunks of facts. Returns their errors."""
        errors: list[MemoryEngineError] = []
        for thread_id, ids in others.items():
            try:
                if await ThreadHandle(self.kernel, thread_id).exists():
                    await self._record_there(ThreadHandle(self.kernel, thread_id), ids)
            except ThreadClosed:  # an archived thread shows no further context
                continue
            except MemoryEngineError as error:
                errors.append(error)
        return errors

    async def _record_there(self, other: ThreadHandle, ids: Collection[str], of: str = "") -> None:
        runtime, of = await other.runtime(), of or self.thread.id
        made: list[tuple[str, Withheld]] = []

        async def make() -> NewEvent:
            change = await self._change(other.id, runtime.state, of, ids)
            made.append((other.id, change))
            return NewEvent(self._event(change, runtime.state, of))

        async with self.kernel[QuarantineKeeper].recording(other.id):
            if self.ends or await self._change(other.id, runtime.state, of, ids):
                await self.kernel[CompactionService].commit(runtime, make)
                self.made.append(made[-1])

    # the report

    async def _report(self, seq: int, state: State, change: Withheld) -> QuarantineReport:
        hidden, shown = list(change.hidden), list(change.shown)
        listed = {"hidden": await self._listed(self.thread.id, hidden, "hidden")}
        listed["shown"] = await self._listed(self.thread.id, shown, "shown")
        for thread_id, there in self.made:
            listed["hidden"] += await self._listed(thread_id, list(there.hidden), "hidden")
            listed["shown"] += await self._listed(thread_id, list(there.shown), "shown")
        answers = await self.kernel.reader.ids_at(self.thread.id, change.answers)
        originals = [one.original for one in change.restored]
        restored = await self.kernel.reader.shown(self.thread.id, originals)
        return QuarantineReport(
            thread_id=self.thread.id,
            source=self.source,
            seq=seq,
            hidden=tuple(listed["hidden"]),
            shown=tuple(listed["shown"]),
            removed=tuple(chunk for one in change.removed if (chunk := state.get(one)) is not None),
            restored=tuple(restored[one] for one in originals if one in restored),
            answers=tuple(await self._listed(self.thread.id, answers, "stays")),
        )

    async def _listed(self, thread_id: str, ids: Sequence[str], change: str) -> list[LearnedElsewhere]:
        if not ids or not await ThreadHandle(self.kernel, thread_id).exists():
            return []
        found = await self.kernel.store.find(thread_id, list(ids))
        return [
            LearnedElsewhere(
                thread_id=thread_id,
                seq=stored.seq,
                event_id=stored.id,
                type=stored.type,
                change=change,
                text=excerpts.one_line(excerpts.of_event(event), TEXT_CHARS),
            )
            for stored in sorted(found, key=lambda one: one.seq)
            for event in [decode_event(thread_id, stored, self.kernel.events)]
        ]


class QuarantineKeeper:
    """Hides what comes from sources in quarantine later, and what brings back what they hide: a rewind, an undoing.

    It is asked before each context of such a thread, and looks after each commit. A thread that was never quarantined
    has nothing to do with it.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._kept: dict[str, tuple[int, int, Reliance]] = {}
        """What rests on the sources of a thread; the seqs of its last quarantine and of the last event noted."""
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def watch(self, runtime: ThreadRuntime) -> None:
        """Look after each commit, from now on."""
        commits = self._kernel[OpenThreads].on_commit
        if self._look not in commits:
            commits.append(self._look)
        self._look(runtime)

    def _look(self, runtime: ThreadRuntime, _reduced: object = ()) -> None:
        if TYPE in runtime.head.marks and not self._kernel.tasks.closing:
            self._kernel.tasks.spawn(self._try(runtime.id))

    async def _try(self, thread_id: str) -> None:
        with suppress(EngineClosed, ThreadNotFound, ThreadClosed):  # a later context waits for it
            await self.keep(thread_id)

    async def keep(self, thread_id: str) -> None:
        """Bring the quarantines of a thread up to date."""
        if self._kernel.config.read_only:
            return
        async with self.acting(thread_id):
            if await self._is_due(thread_id):
                thread = ThreadHandle(self._kernel, thread_id)
                for source, of in await standing_in(self._kernel, thread_id):
                    await _Act(self._kernel, thread, source, False).follow(of)

    def acting(self, thread_id: str) -> asyncio.Lock:
        """Held while a quarantine of a thread changes, here and in others."""
        return self._locks.setdefault(("acting", thread_id), asyncio.Lock())

    def recording(self, thread_id: str) -> asyncio.Lock:
        """Held while a change is read and recorded in one thread, and no other lock is asked for."""
        return self._locks.setdefault(("recording", thread_id), asyncio.Lock())

    async def _is_due(self, thread_id: str) -> bool:
        """Whether anything has come since the last quarantine that rests on a source."""
        head = await self._kernel.store.head(thread_id)
        mark = head.marks.get(TYPE, 0)
        known = self._kept.get(thread_id)
        if known is not None and known[0] == mark:
            _, seq, found = known
            if seq == head.seq:
                return False
            is_due = await note_events(self._kernel, thread_id, found, seq, head.seq)
        else:
            standing = (await standing_in(self._kernel, thread_id)).values()
            found = await relying_on(self._kernel, thread_id, standing)
            is_due = bool(standing)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[thread_id] = mark, head.seq, found
        return is_due
