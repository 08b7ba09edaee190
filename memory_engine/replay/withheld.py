"""The state of a thread without what rests on sources in quarantine, and what comes back when a quarantine ends.

A summary that covers something hidden is opened: the other chunks that it covers come back in its place, since no one
can tell its words apart. It returns in their place when the quarantine ends, unless some of them have gone since.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import field, frozen
from msgspec.structs import replace

from memory_engine.compaction.history import Aftermath, read_aftermath, summary_root
from memory_engine.compaction.undo import restored_chunks
from memory_engine.core.chain import decode_row
from memory_engine.core.chunks import Chunk, Retention
from memory_engine.core.events.base import ChunkOrigin
from memory_engine.core.events.compaction import RestoredChunk, SourceQuarantined
from memory_engine.core.events.memory import SessionEnded
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.lineage import covered, place
from memory_engine.core.operations import Add, Delete, Operation
from memory_engine.core.quarantine import Quarantined, Reliance, in_force, sources_of
from memory_engine.core.records import StoredEvent
from memory_engine.core.rewinding import Rewinds
from memory_engine.core.state import Placed, State, StateDraft
from memory_engine.replay.transition import Transition
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.reader import LogReader
from memory_engine.store.rewinds import rewinds_of

TYPE = SourceQuarantined.event_type
_COPYING: tuple[ChunkOrigin, ...] = ("recalled", "versions", "copies", "summaries")
"""How the chunks of an event came from those that they name as parents."""


@frozen
class OpenedSummary:
    """A summary: the chunks that it covers in order, and those inside them. Summaries among them are opened, too."""

    chunks: Sequence[Chunk]
    inside: Mapping[str, Sequence[Chunk]]

    @classmethod
    async def of(
        cls, reader: LogReader, thread_id: str, summary: Chunk, relying: Reliance, now: State
    ) -> "OpenedSummary":
        """Open a summary as far as it covers what rests on a source; forgotten chunks are left out."""
        known = await reader.inside(thread_id, [summary.id])
        forgettings = (await reader.forgotten(thread_id)).forgettings
        ended = (await reader.head(thread_id)).marks.get(SessionEnded.event_type, 0)
        found: dict[str, Chunk] = {}

        def open_one(chunk: Chunk) -> None:
            if relying.opens(chunk):
                for chunk_id in covered(chunk):
                    open_one(known[chunk_id])
                return
            kept = forgettings.kept(chunk, since=chunk.seq)
            if kept is not None and not (chunk.retention is Retention.EPHEMERAL and chunk.seq < ended):
                is_taken = bool(kept.name) and now.named(kept.name) is not None
                found.setdefault(chunk.id, replace(kept, name="") if is_taken else kept)

        open_one(summary)
        inside: dict[str, Sequence[Chunk]] = {}
        if any(chunk.is_container for chunk in found.values()):
            root = await summary_root(reader, thread_id, summary.id)
            before = await reader.shown_at(thread_id, place(root)[0] - 1)
            inside = {chunk.id: tuple(before.children(chunk.id)) for chunk in found.values() if chunk.is_container}
        return cls(tuple(found.values()), inside)

    def put_instead(self, draft: StateDraft, summary: Placed, kept: Sequence[Chunk]) -> None:
        """Put these of its chunks in the place of the summary."""
        operations: list[Operation] = [Add(one.id, summary.container, before=summary.chunk.id) for one in kept]
        chunks = list(kept)
        for one in kept:
            for child in self.inside.get(one.id, ()):
                operations.append(Add(child.id, one.id))
                chunks.append(child)
        apply_to_draft(draft, [*operations, Delete(summary.chunk.id)], chunks, seq=draft.seq)


async def without(reader: LogReader, thread_id: str, now: State, relying: Reliance) -> State:
    """A state without what rests on sources in quarantine."""
    placed = list(now.placed())
    opened = {
        one.chunk.id: await OpenedSummary.of(reader, thread_id, one.chunk, relying, now)
        for one in placed
        if relying.opens(one.chunk)
    }
    draft = now.draft()
    for one in placed:
        if draft.get(one.chunk.id) is None:  # it went with its container
            continue
        if one.chunk.id in opened:
            found = opened[one.chunk.id]
            found.put_instead(draft, one, [chunk for chunk in found.chunks if not relying.holds(chunk)])
        elif relying.holds(one.chunk):
            draft.remove(one)
    return draft.freeze(now.seq)


@frozen
class Return:
    """What comes back when a quarantine ends, read from the events that hid it.

    `was` is what rested on its source, and `still` what rests on others in force.
    """

    reader: LogReader
    thread_id: str
    now: State
    was: Reliance
    still: Reliance
    rewinds: Rewinds
    cleared_at: int
    restored: list[RestoredChunk] = field(factory=list, init=False)
    removed: list[str] = field(factory=list, init=False)
    _done: set[str] = field(factory=set, init=False)

    @classmethod
    async def of(
        cls,
        reader: LogReader,
        thread_id: str,
        now: State,
        reliance: tuple[Reliance, Reliance],
        events: Sequence[tuple[int, SourceQuarantined]],
    ) -> "Return":
        """Find what these events hid that nothing hides any more."""
        found = cls(
            reader,
            thread_id,
            now,
            *reliance,
            await rewinds_of(reader, thread_id),
            await reader.cleared_at(thread_id, now.seq),
        )
        for seq, event in reversed(events):
            if event.removed:
                await found._take(seq, event)
        return found

    async def _take(self, seq: int, event: SourceQuarantined) -> None:
        before = await self.reader.shown_at(self.thread_id, seq - 1)
        aftermath = await read_aftermath(self.reader, self.thread_id, self.now, after=seq - 1)
        taken: dict[str, str] = {}
        draft = before.draft()
        for chunk_id in event.removed:
            placed = before.placed_at(chunk_id)
            if placed is None or not self._is_due(placed.chunk):
                continue
            if self.was.opens(placed.chunk):
                taken.update(await self._close(draft, placed, event, aftermath))
            elif not self.still.holds(placed.chunk) and not aftermath.standing(chunk_id):
                taken[chunk_id] = ""
        if taken:
            base = draft.freeze(before.seq)
            self.restored.extend(self._named(one, base) for one in restored_chunks(base, aftermath, taken))

    def _named(self, one: RestoredChunk, base: State) -> RestoredChunk:
        """The chunk under its own name, where none has taken that since: several may share one."""
        chunk = base.get(one.original)
        if one.name or chunk is None or not chunk.name:
            return one
        is_free = all(base.get(other.id) is not None for other in self.now.bearers(chunk.name))
        return replace(one, name=chunk.name) if is_free else one

    def _is_due(self, chunk: Chunk) -> bool:
        """Whether a chunk was not put back already, rewound or cleared since."""
        versions = {chunk.id, *chunk.parent_ids} if not chunk.lines else {chunk.id}
        if self._done & versions:
            return False
        self._done.update(versions)
        first = min(place(one)[0] for one in versions)
        return self.rewinds.of_own(self.now.seq).has(first) and self.cleared_at < first

    async def _close(
        self, draft: StateDraft, placed: Placed, event: SourceQuarantined, aftermath: Aftermath
    ) -> Iterator[tuple[str, str]]:
        """A summary comes back in the place of the chunks that it covers, or what was hidden of these does."""
        summary = placed.chunk
        opened = await OpenedSummary.of(self.reader, self.thread_id, summary, self.was, self.now)
        brought = {one.original for one in event.restored}
        copies = [one.id for one in opened.chunks if one.id in brought]
        hidden = [one for one in opened.chunks if one.id not in brought]
        if hidden and all(one.id in self._done for one in hidden):  # a later version of the summary brought them
            return iter(())
        fates = [aftermath.fate(one) for one in copies]
        if not self.still.opens(summary) and all(fate.status == "live" for fate in fates):
            self.removed.extend(fate.chunk_id for fate in fates)
            self._done.update(one.id for one in opened.chunks)
            return iter([(summary.id, fates[0].chunk_id if fates else "")])
        opened.put_instead(draft, placed, opened.chunks)
        gone = [one for one in hidden if self._is_due(one) and not self.still.holds(one)]
        return iter([(one.id, "") for one in gone if not aftermath.standing(one.id)])


@frozen
class Withheld:
    """What one thread records, made from one of its states."""

    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restored: tuple[RestoredChunk, ...] = ()
    answers: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.hidden or self.shown or self.removed or self.restored)

    @classmethod
    async def hiding(
        cls, kernel: Kernel, thread_id: str, now: State, one: Quarantined, known: Collection[str]
    ) -> "Withheld":
        """Hide what rests on a quarantine; `known` are the ids of the events that it has hidden already."""
        found = await relying_on(kernel, thread_id, [one])
        gone = (await rewinds_of(kernel.reader, thread_id)).one_by_one(now.seq)
        hidden = tuple(event_id for event_id, seq in found.hidden.items() if event_id not in known or seq not in gone)
        wanted = await without(kernel.reader, thread_id, now, found)
        placed = (place.chunk for place in now.placed())
        steps = Transition(now, wanted, {chunk.parent_ids[0]: chunk.id for chunk in placed if chunk.parent_ids})
        restored = tuple(steps.restored())
        return cls(hidden, (), tuple(steps.removed()), restored, tuple(found.answers))

    @classmethod
    async def showing(
        cls, kernel: Kernel, thread_id: str, now: State, ended: Quarantined, standing: Collection[Quarantined]
    ) -> "Withheld":
        """Show what an ended quarantine has hidden, but for what others that still stand hide."""
        was, still = await relying_on(kernel, thread_id, [ended]), await relying_on(kernel, thread_id, standing)
        acts = [one for one in await quarantine_events(kernel, thread_id) if not one[1].ends]
        found = await Return.of(kernel.reader, thread_id, now, (was, still), acts)
        kept = frozenset[str](still.hidden).union(*(one.hidden for one in standing))
        shown = tuple(event_id for event_id in sorted(ended.hidden) if event_id not in kept)
        return cls((), shown, tuple(found.removed), tuple(found.restored))


async def quarantine_events(
    kernel: Kernel, thread_id: str, upto: int | None = None
) -> list[tuple[int, SourceQuarantined]]:
    """The events of a thread that record quarantines and releases, each with its seq."""
    head = await kernel.reader.head(thread_id)
    if TYPE not in head.marks:
        return []
    last = head.seq if upto is None else min(upto, head.seq)
    return [
        (stored.seq, event) async for stored, event in kernel.reader.events_of(SourceQuarantined, thread_id, upto=last)
    ]


async def standing_in(kernel: Kernel, thread_id: str, upto: int | None = None) -> dict[tuple[str, str], Quarantined]:
    """The quarantines in force in a thread, by source and by the thread that they are of."""
    return in_force(await quarantine_events(kernel, thread_id, upto))


async def relying_on(kernel: Kernel, thread_id: str, standing: Collection[Quarantined]) -> Reliance:
    """Return what relies on the quarantines in force: on their sources, or on events that they have hidden."""
    found = Reliance(sources_of(standing), frozenset[str]().union(*(one.hidden for one in standing)))
    if standing:
        await note_events(kernel, thread_id, found, 0, (await kernel.store.head(thread_id)).seq)
    return found


async def note_events(kernel: Kernel, thread_id: str, found: Reliance, after: int, upto: int) -> bool:
    """Note the events with `after` < seq <= `upto`; whether any of them, or a chunk of theirs, rests on its sources."""
    registry, is_any = kernel.reader.registry, False
    copying = registry.of_chunks(*_COPYING)

    def note(stored: StoredEvent) -> None:
        nonlocal is_any
        event, reduction = decode_row(thread_id, stored, registry)
        is_upkeep, is_copying = registry.is_upkeep(stored.type), stored.type in copying
        is_any |= found.note(stored, event, reduction.chunks, is_upkeep=is_upkeep, is_copying=is_copying)

    await kernel.reader.walk(thread_id, after=after, upto=upto).feed(note)
    return is_any
