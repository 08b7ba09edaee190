"""Rewind a thread: what was said after a moment is taken back, with what was learned from it elsewhere.

One event does it. It names the moment, brings the chunks that lead from the present state to that one, and names the
threads that facts of the events since have reached. Which events are shown after it follows from the moment alone (see
`core.rewinding`), and all views and the search are made of these. So a rewind to the moment before another one undoes
that, and nothing is ever removed from the log.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence

import msgspec
from attrs import evolve, frozen

from memory_engine.compaction.service import CompactionService
from memory_engine.core import excerpts
from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_event
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import RestoredChunk, RewindReach, ThreadRewound
from memory_engine.core.events.delivery import Destination, FactsRewound
from memory_engine.core.json_form import JsonForm
from memory_engine.core.lineage import Descent
from memory_engine.core.records import NewEvent, StoredEvent
from memory_engine.core.rewinding import STICKY, Range, Rewind, Rewinds, difference
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import CannotRewind, InvalidArgument, MemoryEngineError, ThreadClosed
from memory_engine.projections.base import event_types
from memory_engine.projections.outbox import FACTS, OutboxFact, derived_id, is_within
from memory_engine.replay.transition import Transition
from memory_engine.runtime import recalled
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.life import forks_of
from memory_engine.runtime.scoped import scope_of
from memory_engine.store.protocol import ThreadFilter
from memory_engine.store.reader import MomentLike, seq_of
from memory_engine.store.rewinds import rewinds_of
from memory_engine.store.snapshots import is_rewindable

TEXT_CHARS = 200
"""Characters of a fact's text in a report."""


class LearnedElsewhere(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """An event of another thread: a fact that was learned from events of a rewind, or something made of such facts.

    `change` is `hidden` or `shown` for a fact, and `stays` for what others have built on one that is hidden: it keeps
    its place. `seq` is 0 for a fact that is still on its way.
    """

    thread_id: str
    seq: int
    event_id: str
    type: str
    change: str
    text: str = ""


class RewindReport(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a rewind: the thread goes on from the moment `to`; it held the events up to `upto` before.

    `seq` is the event that recorded it; 0: none did, it was a dry run. Of the `events` that it takes back `hidden` are
    the ranges, and `shown` are those of events that it brings back (it undoes an earlier rewind). `removed` chunks
    leave the context, and `restored` ones come back, with the ids that they had. `learned` lists the facts that other
    threads got from these events, `built_on` what others have made of those since, copies that they recalled, and
    forks that share what is taken back: all of these stay, but for the copies. To undo it, rewind to `upto`.
    """

    thread_id: str
    to: int
    upto: int
    seq: int
    events: int
    hidden: tuple[Range, ...]
    shown: tuple[Range, ...]
    removed: tuple[Chunk, ...]
    restored: tuple[Chunk, ...]
    learned: tuple[LearnedElsewhere, ...]
    built_on: tuple[LearnedElsewhere, ...]


async def rewind(
    thread: ThreadHandle, moment: MomentLike | None, *, redo: bool, dry_run: bool, reason: str
) -> RewindReport:
    """See `Thread.rewind`."""
    kernel = thread.kernel
    if redo and moment is not None:
        raise InvalidArgument("moment", moment, "leave it out with redo: the rewind that is undone names it")
    if not dry_run:
        kernel.check_writable("a rewind")
    await seq_of(kernel.store, thread.id, moment if moment is not None else 0)
    if dry_run:
        planned = await _Planned.of(kernel, thread.id, await thread.state(), moment, redo=redo)
        return await planned.report(0)
    runtime = await thread.runtime()
    made: list[_Planned] = []

    async def make() -> NewEvent:
        made.append(await _Planned.of(kernel, thread.id, runtime.state, moment, redo=redo))
        return NewEvent(await made[-1].event(reason))

    async with kernel[Relay].attended(thread.id):
        receipt = await kernel[CompactionService].commit(runtime, make)
        report = await made[-1].report(receipt.seq)
        await made[-1].hide_copies(receipt.seq, reason)
        await kernel[Relay].deliver(thread.id)
    return report


@frozen
class _Planned:
    """A rewind of a thread in a state, before anything is recorded."""

    kernel: Kernel
    record: ThreadRecord
    now: State
    to: int
    hidden: tuple[Range, ...]
    shown: tuple[Range, ...]
    removed: tuple[str, ...] = ()
    restored: tuple[RestoredChunk, ...] = ()
    returning: tuple[Chunk, ...] = ()
    """The chunks of the moment that come back."""

    @classmethod
    async def of(
        cls, kernel: Kernel, thread_id: str, now: State, moment: MomentLike | None, *, redo: bool
    ) -> "_Planned":
        """Find what a rewind to a moment changes. Raises `CannotRewind` for nothing, and what `seq_of` raises."""
        known = await rewinds_of(kernel.reader, thread_id)
        if redo:
            to = _undone(known, thread_id, now.seq)
        else:
            to = await seq_of(kernel.store, thread_id, moment if moment is not None else now.seq)
        before = known.at(now.seq)
        after = known.then(Rewind(now.seq + 1, to))
        [(record, _)] = await kernel.store.threads(ThreadFilter(id=thread_id))
        planned = cls(kernel, record, now, to, difference(before, after, now.seq), difference(after, before, now.seq))
        planned = await planned.with_chunks()
        if not (planned.removed or planned.restored or await planned.is_any()):
            raise CannotRewind(thread_id, to, "the thread shows the same events already")
        return planned

    async def with_chunks(self) -> "_Planned":
        """The same with the chunks that go and come: the state of the moment, without what was forgotten since."""
        wanted = await self.kernel.reader.shown_at(self.record.id, self.to)
        placed = (one.chunk for one in self.now.placed())
        copies = {chunk.parent_ids[0]: chunk.id for chunk in placed if chunk.parent_ids}
        found = Transition(self.now, wanted, copies)
        restored, removed = await aside(lambda: (tuple(found.restored()), tuple(found.removed())), items=len(self.now))
        returning = (wanted.get(one.original) for one in restored)
        return evolve(
            self, removed=removed, restored=restored, returning=tuple(one for one in returning if one is not None)
        )

    async def is_any(self) -> bool:
        """Whether it changes what is shown: events that hold in any case do not count."""
        for ranges in (self.hidden, self.shown):
            async for _ in self._rows(ranges):
                return True
        return False

    async def _rows(self, ranges: Iterable[Range]) -> AsyncIterator[StoredEvent]:
        """The events in these ranges that anyone is shown: not those of upkeep, unless a view reads them."""
        reader = self.kernel.reader
        views = (one for one in self.kernel.projections if is_rewindable(one.name))
        read = {name for view in views for name in event_types(view) or ()}
        for first, last in ranges:
            async for stored in reader.walk(self.record.id, after=first - 1, upto=last):
                is_shown = stored.type in read or not reader.registry.is_upkeep(stored.type)
                if is_shown and stored.type not in STICKY:
                    yield stored

    async def event(self, reason: str) -> ThreadRewound:
        """The event that records it."""
        return ThreadRewound(
            to=self.to,
            restored=self.restored,
            removed=self.removed,
            reach=await self._reach(),
            reason=reason,
            seen=self.now.seq,
        )

    # other threads

    async def _facts(self) -> list[tuple[OutboxFact, bool]]:
        """The facts of these events for other threads, and whether they are hidden."""
        found: list[tuple[OutboxFact, bool]] = []
        for fact in await facts_of(self.kernel, self.record.id):
            found += [(fact, True)] if _is_in(fact.seq, self.hidden) else []
            found += [(fact, False)] if _is_in(fact.seq, self.shown) else []
        return found

    async def _reach(self) -> tuple[RewindReach, ...]:
        reach: dict[Destination, tuple[list[str], list[str]]] = {}
        for fact, is_hidden in await self._facts():
            hidden, shown = reach.setdefault(fact.destination, ([], []))
            (hidden if is_hidden else shown).append(fact.arrival)
        return tuple(RewindReach(one, tuple(hidden), tuple(shown)) for one, (hidden, shown) in reach.items())

    async def _copies_elsewhere(self, *, drop: bool) -> dict[str, list[str]]:
        """The events of other threads that hold passages of hidden events: their ids, by thread."""
        seqs = [seq for first, last in self.hidden for seq in range(first, last + 1)]
        ids = await self.kernel.reader.ids_at(self.record.id, seqs)
        return await recalled.elsewhere(self.kernel, self.record.id, ids, drop=drop)

    async def hide_copies(self, seq: int, reason: str) -> None:
        """Take out of other threads what they recalled of hidden events. The first error is raised at the end."""
        errors: list[MemoryEngineError] = []
        for other_id, ids in (await self._copies_elsewhere(drop=True)).items():
            other = ThreadHandle(self.kernel, other_id)
            copies = Descent(seqs={one.seq for one in await self.kernel.store.find(other_id, ids)})
            chunks = (one.chunk for one in (await other.state()).placed())
            gone = tuple(one.id for one in chunks if copies.has(one.id) or (not one.lines and copies.is_behind(one)))
            event = FactsRewound(hidden=tuple(ids), removed=gone, reason=reason)
            try:
                await other.dispatch(event, event_id=derived_id("rewound", self.record.id, str(seq), other_id))
            except ThreadClosed:  # an archived thread shows no further context
                continue
            except MemoryEngineError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # the report

    async def report(self, seq: int) -> RewindReport:
        """The report of it; `seq` is the event that recorded it, 0 in a dry run."""
        learned, built_on = await self._elsewhere()
        return RewindReport(
            thread_id=self.record.id,
            to=self.to,
            upto=self.now.seq,
            seq=seq,
            events=len([one async for one in self._rows(self.hidden)]),
            hidden=self.hidden,
            shown=self.shown,
            removed=tuple(chunk for one in self.removed if (chunk := self.now.get(one)) is not None),
            restored=self.returning,
            learned=learned,
            built_on=(*built_on, *await self._shared()),
        )

    async def _elsewhere(self) -> tuple[tuple[LearnedElsewhere, ...], tuple[LearnedElsewhere, ...]]:
        """The facts that other threads got, and what was made of them there."""
        by_thread: dict[str, dict[str, tuple[OutboxFact, bool]]] = {}
        for fact, is_hidden in await self._facts():
            target = scope_of(self.kernel, fact.destination).id
            by_thread.setdefault(target, {})[fact.arrival] = fact, is_hidden
        learned: list[LearnedElsewhere] = []
        built_on: list[LearnedElsewhere] = []
        for target, facts in by_thread.items():
            exists = bool(await self.kernel.store.threads(ThreadFilter(id=target)))
            arrived = {one.id: one for one in await self.kernel.store.find(target, list(facts))} if exists else {}
            for arrival, (fact, is_hidden) in facts.items():
                change = "hidden" if is_hidden else "shown"
                if (stored := arrived.get(arrival)) is not None:
                    learned.append(self._listed(target, stored, change))
                else:
                    learned.append(
                        LearnedElsewhere(thread_id=target, seq=0, event_id=arrival, type=fact.type, change=change)
                    )
            built_on += await self._built_on(target, [one for one in arrived.values() if facts[one.id][1]])
        return tuple(learned), tuple(built_on)

    async def _built_on(self, target: str, arrived: Sequence[StoredEvent]) -> list[LearnedElsewhere]:
        """The events of a thread that name any of these as their source."""
        if not arrived:
            return []
        facts = Descent(seqs={one.seq for one in arrived}, events={one.id for one in arrived})
        reader = self.kernel.reader
        head = await self.kernel.store.head(target)
        found = []
        async for stored in reader.walk(target, after=min(facts.seqs), upto=head.seq):
            event = decode_event(target, stored, reader.registry)
            if stored.type not in STICKY and isinstance(event, Event) and facts.is_source_of(event, stored.seq):
                found.append(self._listed(target, stored, "stays"))
        return found

    async def _shared(self) -> list[LearnedElsewhere]:
        """The copies that other threads have recalled, and the forks that share what is taken back."""
        found = []
        for other_id, ids in (await self._copies_elsewhere(drop=False)).items():
            rows = await self.kernel.store.find(other_id, ids)
            found += [self._listed(other_id, stored, "hidden") for stored in rows]
        for fork_id, upto in await forks_of(self.kernel, self.record.id):
            if self.hidden and upto >= self.hidden[0][0]:
                found.append(LearnedElsewhere(thread_id=fork_id, seq=upto, event_id="", type="fork", change="stays"))
        return found

    def _listed(self, thread_id: str, stored: StoredEvent, change: str) -> LearnedElsewhere:
        text = excerpts.of_event(decode_event(thread_id, stored, self.kernel.events))
        return LearnedElsewhere(
            thread_id=thread_id,
            seq=stored.seq,
            event_id=stored.id,
            type=stored.type,
            change=change,
            text=excerpts.one_line(text, TEXT_CHARS),
        )


async def facts_of(kernel: Kernel, thread_id: str) -> list[OutboxFact]:
    """The facts of a thread that follow it when it hides what they came from.

    Facts of a past that a fork shares are its origin's, and a pool's are withdrawn by their tenant.
    """
    found = await kernel.store.threads(ThreadFilter(id=thread_id))
    if not found:
        return []
    record = found[0][0]
    begin = record.forked_from.seq if record.forked_from is not None else 0
    rows = await ThreadHandle(kernel, thread_id).rows(FACTS)
    return [
        fact
        for fact in [row for _, row in rows.items()]
        if fact.seq > begin and fact.type not in STICKY and is_within(fact.destination, record.tenant_id)
        if not kernel.kind(fact.destination.kind).pooled
    ]


def _is_in(seq: int, ranges: Collection[Range]) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def _undone(known: Rewinds, thread_id: str, head: int) -> int:
    """The moment before the latest rewind that is in force. Raises `CannotRewind`."""
    shown, starts = known.at(head), {one.seq for one in known.own}
    for one in reversed(known.own):
        if shown.has(one.seq) and one.to + 1 not in starts:
            return one.seq - 1
    raise CannotRewind(thread_id, head, "no rewind is in force that could be undone")
