"""Reading the log: pages of events, states in the past, originals of summaries, moments as people name them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, TypeVar

import msgspec

from memory_engine.core.aside import aside, classes_imported
from memory_engine.core.chain import (
    apply_rows,
    decode_event,
    decode_row,
    is_redacted,
    load_state,
    read_back,
    unreadable_marks,
)
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.clock import to_us
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.compaction import RESTORING
from memory_engine.core.events.memory import MemoryForget, ThreadCleared
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.lazy import lazy_modules
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.core.state import State
from memory_engine.core.threads import Head, LoadedThread, ThreadRecord
from memory_engine.errors import EventNotFound, IntegrityError, InvalidOperation, SeqNotInLog, UnknownChunk
from memory_engine.store.protocol import Store
from memory_engine.store.snapshots import AtHand, Moments, Snapshots, forgotten_at

E = TypeVar("E", bound=Event)

if TYPE_CHECKING:
    from memory_engine.core import forgetting, lineage
    from memory_engine.store import attested, rewinds
    from memory_engine.store import walk as walking
else:
    forgetting, lineage, attested, rewinds, walking = lazy_modules(
        "memory_engine", "core.forgetting core.lineage store.attested store.rewinds store.walk"
    )

PAGE = 512
"""Rows read in one go."""
TURN = 64
"""Events decoded one after the other on the loop's own thread, before it has a turn."""
FORGOTTEN_MAX = 512
"""Threads whose forgettings are held in memory."""
FAR = 2_000
"""Events that are folded before the state is kept for later reads."""


class Forgotten(msgspec.Struct, frozen=True):
    """The forgettings of a thread up to the one at `mark`, as events and as what they do to chunks."""

    mark: int
    events: Sequence[RecordedEvent]
    forgettings: "forgetting.Forgettings"
    origins: frozenset[int]


UNVOUCHED = "something stands in the place of its texts that no recorded act has put there"


class LogReader:
    """Reads threads of one store with one engine's event types."""

    def __init__(
        self, store: Store, registry: EventRegistry, *, read_only: bool = False, check_hashes: bool = True
    ) -> None:
        self._store = store
        self.registry = registry
        self._check_hashes = check_hashes
        self.snapshots = Snapshots(store, read_only=read_only)
        self.moments = AtHand()
        self._forgotten: dict[str, Forgotten] = {}

    async def pages(
        self, thread_id: str, *, after: int, upto: int, types: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[StoredEvent]]:
        """Rows with `after` < seq <= `upto`, all or those of some types, in order, a page at a time.

        Decoding one raises `IntegrityError` where it is not what its hash binds.
        """
        while after < upto:
            page = await self._store.read(thread_id, after=after, upto=upto, limit=PAGE, types=types)
            if not page:
                return
            yield await self._checked(thread_id, page)
            after = page[-1].seq if types is None or len(page) == PAGE else upto

    def clear(self) -> None:
        """Drop what is in memory: something was deleted or erased."""
        self._forgotten.clear()
        self.snapshots.clear()
        self.moments.clear()

    async def raw_pages(
        self, thread_id: str, *, after: int = 0, upto: int, types: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[StoredEvent]]:
        """The same rows unchecked, for the caller to check."""
        while after < upto:
            page = await self._store.read(thread_id, after=after, upto=upto, limit=PAGE, types=types)
            if not page:
                return
            yield [unlinked(stored) for stored in page]
            after = page[-1].seq

    def walk(
        self, thread_id: str, *, after: int = 0, upto: int, types: Collection[str] | None = None, raw: bool = False
    ) -> "walking.LogWalk":
        """A walk of the rows that `pages` reads, or `raw_pages`."""
        pages = self.raw_pages if raw else self.pages
        return walking.LogWalk(pages(thread_id, after=after, upto=upto, types=types))

    async def events_of(
        self, cls: type[E], thread_id: str, *, after: int = 0, upto: int
    ) -> AsyncIterator[tuple[StoredEvent, E]]:
        """The events of a class with `after` < seq <= `upto`, in order, each with its row.

        Those of a version that is not known here are left out. Raises `IntegrityError`.
        """
        async for stored in self.walk(thread_id, after=after, upto=upto, types=(cls.event_type,)):
            event = decode_event(thread_id, stored, self.registry)
            if isinstance(event, cls):
                yield stored, event

    async def load(self, thread_id: str) -> LoadedThread:
        """A thread's live state with the events behind it, checked as far as `pages` says.

        Raises `ThreadNotFound`.
        """
        loaded = await self._store.load(thread_id)
        if self._check_hashes:
            while (unvouched := await self._unvouched(thread_id, loaded.sources.values())) is not None:
                await self._check_replaced(thread_id, unvouched)
                loaded = await self._store.load(thread_id)
            return loaded
        sources = loaded.sources
        unchecked = await aside(lambda: {seq: unlinked(stored) for seq, stored in sources.items()}, items=len(sources))
        return msgspec.structs.replace(loaded, sources=unchecked)

    async def state_of(self, loaded: LoadedThread) -> State:
        """The state of a loaded thread. Raises `IntegrityError` (see `load_state`)."""
        await classes_imported(self.registry, (stored.type for stored in loaded.sources.values()))
        return await aside(lambda: load_state(loaded, self.registry), items=len(loaded.live))

    async def _checked(self, thread_id: str, rows: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Rows ready to be decoded, which checks their hashes. Raises `IntegrityError` (see `_check_replaced`)."""
        await classes_imported(self.registry, (stored.type for stored in rows))
        if not self._check_hashes:
            return [unlinked(stored) for stored in rows]
        while (unvouched := await self._unvouched(thread_id, rows)) is not None:
            await self._check_replaced(thread_id, unvouched)
            rows = await self._store.read_at(thread_id, [stored.seq for stored in rows])
        return rows

    async def _unvouched(self, thread_id: str, rows: Collection[StoredEvent]) -> StoredEvent | None:
        """The first row without its texts that no recorded act has left so."""
        redacted = await aside(lambda: list(filter(is_redacted, rows)), items=len(rows) // 10)
        if not redacted:
            return None
        found = await attested.attested_of(self._store, self.registry, thread_id)
        imported = await attested.imported_of(self._store, thread_id)
        return next((stored for stored in redacted if not found.vouches(stored, imported)), None)

    async def _check_replaced(self, thread_id: str, unvouched: StoredEvent) -> None:
        """Raise `IntegrityError` for a row that no act vouches for, unless another act came between the two readings.

        That one has put another row in its place: read again.
        """
        if unvouched in await self._store.read_at(thread_id, [unvouched.seq]):
            raise IntegrityError(thread_id, unvouched.seq, UNVOUCHED)

    async def head(self, thread_id: str) -> Head:
        """A thread's position. Raises `ThreadNotFound`, `IntegrityError` if its marks cannot be read."""
        head = await self._store.head(thread_id)
        if head.unreadable:
            raise unreadable_marks(thread_id, head)
        return head

    def decode(self, thread_id: str, stored: StoredEvent) -> RecordedEvent:
        """A row as users see it."""
        return read_back(thread_id, stored, self.registry)

    async def events(self, thread_id: str, *, after: int, upto: int) -> AsyncIterator[RecordedEvent]:
        """Decoded events, in order."""
        async for page in self.pages(thread_id, after=after, upto=upto):
            for n, stored in enumerate(page, 1):
                yield read_back(thread_id, stored, self.registry)
                if not n % TURN:
                    await asyncio.sleep(0)

    async def forgotten(self, thread_id: str) -> "Forgotten":
        """The forgettings of a thread. Reads the log only if there are some that it has not read yet."""
        mark = forgotten_at(await self.head(thread_id))
        found = self._forgotten.get(thread_id)
        if found is None or found.mark != mark:
            events = [
                read_back(thread_id, stored, self.registry)
                async for stored in self.walk(thread_id, upto=mark, types=(MemoryForget.event_type,))
            ]
            each = [(one.seq, one.event) for one in events if isinstance(one.event, MemoryForget)]
            targets = forgetting.Forgettings([(seq, forgetting.Targets(event)) for seq, event in each])
            origins = frozenset(origin for _, event in each for origin in event.origins())
            found = Forgotten(mark, events, targets, origins)
            if len(self._forgotten) >= FORGOTTEN_MAX:
                self._forgotten.clear()
            self._forgotten[thread_id] = found
        return found

    async def cleared_at(self, thread_id: str, seq: int) -> int:
        """The seq at which the thread was last cleared up to `seq`, 0 if it never was."""
        mark = (await self.head(thread_id)).marks.get(ThreadCleared.event_type, 0)  # in a fork, too high
        found = await self.walk(thread_id, upto=min(seq, mark), types=(ThreadCleared.event_type,)).all()
        shown = await rewinds.shown_at(self, thread_id, seq)
        return max((one.seq for one in found if shown.has(one.seq)), default=0)

    async def shown_at(self, thread_id: str, seq: int) -> State:
        """The state after the event at `seq`, without content that was forgotten since."""
        return (await self.forgotten(thread_id)).forgettings.hidden_in(await self.state_at(thread_id, seq))

    async def shown(self, thread_id: str, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Those of the chunks that were not forgotten, by id; summaries without their forgotten lines.

        Raises `UnknownChunk` for one that never was.
        """
        chunks = await self.chunks(thread_id, chunk_ids)
        forgettings = (await self.forgotten(thread_id)).forgettings
        kept = {chunk_id: forgettings.kept(chunk, since=chunk.seq) for chunk_id, chunk in chunks.items()}
        return {chunk_id: chunk for chunk_id, chunk in kept.items() if chunk is not None}

    async def state_at(self, thread_id: str, seq: int) -> State:
        """The state after the event at `seq`: recorded operations only, no reducer runs.

        What verifying, rebuilding and forking go by; `shown_at` is what is given out.

        From the nearest snapshot that fits the log, else from the beginning.
        """
        moments = self.moments.of(self._store.generation)
        state = await self._nearest(thread_id, seq, moments)
        kept_at = state.seq
        async for page in self.pages(thread_id, after=state.seq, upto=seq):
            draft = state.draft()
            await aside(partial(apply_rows, draft, page, thread_id, self.registry), items=len(page))
            state = await aside(partial(draft.freeze, draft.seq), items=len(page))
            if moments is self.moments.of(self._store.generation):  # else something was erased since it was read
                moments.keep(thread_id, state, page[-1].hash, on_the_way=len(page) == PAGE)
            if seq > state.seq >= kept_at + FAR:  # no snapshots yet: an imported log, or an older one
                await self.snapshots.keep_state(thread_id, state, page[-1].hash)
                kept_at = state.seq
        return state

    async def kept_before(self, thread_id: str, seq: int) -> tuple[int, Collection[str]] | None:
        """The nearest snapshot up to a seq: its seq, and the ids of its chunks; `None` where none fits the log."""
        found = await self.snapshots.nearest_state(thread_id, seq)
        if found is None:
            return None
        at, kept = found
        rows = await self.rows_at(thread_id, {at})
        fits = at in rows and rows[at].hash == kept.hash
        return (at, frozenset(live.chunk_id for live in kept.live)) if fits else None

    async def advanced(self, thread_id: str, state: State, known: Head, head: Head) -> State | None:
        """The state with the events that came between two heads; `None` if they do not go on from there."""
        draft, digest = state.draft(), known.hash
        try:
            async for stored in self.walk(thread_id, after=known.seq, upto=head.seq):
                _, reduction = decode_row(thread_id, stored, self.registry)
                apply_to_draft(draft, reduction.operations, reduction.chunks, seq=stored.seq)
                digest = stored.hash
        except (InvalidOperation, IntegrityError):
            return None
        fits = digest == head.hash and (draft.tally.chunks, draft.tally.tokens) == (head.chunks, head.tokens)
        return draft.freeze(head.seq) if fits else None

    async def _nearest(self, thread_id: str, seq: int, moments: Moments) -> State:
        """The nearest state at hand up to a seq, or of a snapshot; the empty one where none fits the log."""
        moment = moments.nearest(thread_id, seq)
        found = await self.snapshots.nearest_state(thread_id, seq)
        if moment is not None and (found is None or found[0] <= moment.state.seq):
            rows = await self.rows_at(thread_id, {moment.state.seq})
            if any(row.hash == moment.hash for row in rows.values()):
                return moment.state
            moments.drop(thread_id)
        if found is None:
            return State()
        at, kept = found
        rows = await self.rows_at(thread_id, {at, *(_seq_of_chunk(live.chunk_id) for live in kept.live)})
        if at not in rows or rows[at].hash != kept.hash:
            return State()
        head = Head(seq=at, hash=kept.hash, chunks=kept.chunks, tokens=kept.tokens)
        try:
            return await self.state_of(LoadedThread(ThreadRecord(id=thread_id), head, kept.live, rows))
        except IntegrityError:
            return State()

    async def chunks(self, thread_id: str, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Chunks by id, wherever in the log they are. Raises `UnknownChunk` for one that never was."""
        found = await self.found_chunks(thread_id, chunk_ids)
        missing = [chunk_id for chunk_id in chunk_ids if chunk_id not in found]
        if missing:
            raise UnknownChunk("read", missing[0])
        return found

    async def found_chunks(self, thread_id: str, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Those of the chunks that there are, by id."""
        made = await self._made_at(thread_id, chunk_ids)
        return {chunk_id: made[chunk_id][0] for chunk_id in chunk_ids if chunk_id in made}

    async def _made_at(self, thread_id: str, chunk_ids: Collection[str]) -> dict[str, tuple[Chunk, str]]:
        """Those of the chunks that there are, each with the type of its event, by id, in the order of the log."""
        rows = (await self.rows_at(thread_id, set(map(_seq_of_chunk, chunk_ids)))).values()
        wanted = frozenset(chunk_ids)

        def made() -> dict[str, tuple[Chunk, str]]:
            read = ((row.type, decode_row(thread_id, row, self.registry)[1].chunks) for row in rows)
            return {chunk.id: (chunk, kind) for kind, chunks in read for chunk in chunks if chunk.id in wanted}

        return await aside(made, items=len(rows))

    async def ids_at(self, thread_id: str, seqs: Collection[int]) -> list[str]:
        """The ids of the events at these seqs."""
        return [stored.id for stored in (await self.rows_at(thread_id, seqs)).values()]

    async def chunk_ids_at(self, thread_id: str, seqs: Collection[int]) -> list[str]:
        """The ids of the chunks that the events at these seqs brought."""
        rows = (await self.rows_at(thread_id, seqs)).values()
        return [chunk.id for row in rows for chunk in decode_row(thread_id, row, self.registry)[1].chunks]

    async def call_ids(self, thread_id: str, chunk_ids: Collection[str], seqs: Collection[int]) -> tuple[str, ...]:
        """The calls that are made or answered in these chunks, and in those of these events."""
        rows = await self.rows_at(thread_id, {*seqs, *map(_seq_of_chunk, chunk_ids)})
        found: dict[str, None] = {}
        for stored in rows.values():
            for chunk in decode_row(thread_id, stored, self.registry)[1].chunks:
                if stored.seq in seqs or chunk.id in chunk_ids:
                    found.update(dict.fromkeys((chunk.call_id, *(call.id for call in chunk.calls))))
        return tuple(call_id for call_id in found if call_id)

    async def rows_at(self, thread_id: str, seqs: Collection[int]) -> dict[int, StoredEvent]:
        """The rows at these seqs, in order."""
        if not seqs:
            return {}
        rows = await self._checked(thread_id, await self._store.read_at(thread_id, sorted(seqs)))
        return {row.seq: row for row in rows}

    async def originals(self, thread_id: str, summary: Chunk) -> list[Chunk]:
        """The originals of a summary, through summaries of summaries, in their old order.

        A chunk that an undone compaction had put back is given as it first was.
        """
        known = await self.inside(thread_id, summary.parent_ids)
        ordered = list(lineage.opened(summary.parent_ids, known))
        first = await self.as_first(thread_id, ordered)
        return [first[chunk.id] for chunk in ordered]

    async def inside(self, thread_id: str, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Chunks and, for each summary, those that it covers, at any depth, by id. Raises `UnknownChunk`."""
        levels = self.levels(thread_id, chunk_ids, lambda chunk, _type: lineage.covered(chunk))
        return {chunk_id: chunk async for level in levels for chunk_id, chunk in level.items()}

    async def levels(
        self,
        thread_id: str,
        chunk_ids: Iterable[str],
        further: Callable[[Chunk, str], Iterable[str]],
        *,
        strict: bool = True,
    ) -> AsyncIterator[dict[str, Chunk]]:
        """Chunks by id, level by level: first these, then those that they come from, each once.

        `further` names the ones that a chunk comes from; it is given the chunk and the type of its event, in the order
        of the log. Raises `UnknownChunk` for a chunk that never was, or leaves it out where it is not `strict`.
        """
        waiting = list(dict.fromkeys(chunk_ids))
        known: set[str] = set()
        while waiting:
            made = await self._made_at(thread_id, waiting)
            missing = [chunk_id for chunk_id in waiting if chunk_id not in made]
            if missing and strict:
                raise UnknownChunk("read", missing[0])
            known.update(waiting)
            behind = dict.fromkeys(one for chunk, kind in made.values() for one in further(chunk, kind))
            yield {chunk_id: made[chunk_id][0] for chunk_id in waiting if chunk_id in made}
            waiting = [chunk_id for chunk_id in behind if chunk_id not in known]

    async def as_first(self, thread_id: str, chunks: Iterable[Chunk]) -> dict[str, Chunk]:
        """By chunk id: the first form of a chunk that an undone compaction had put back, else the chunk itself."""
        found = {chunk.id: chunk for chunk in chunks}
        originals: dict[str, str] = {}

        def original(chunk: Chunk, kind: str) -> tuple[str, ...]:
            before = chunk.parent_ids[:1] if kind in RESTORING else ()
            originals.update((chunk.id, one) for one in before)
            return before

        derived = [chunk.id for chunk in found.values() if chunk.parent_ids]
        known: dict[str, Chunk] = {}
        async for level in self.levels(thread_id, derived, original):
            known |= level
        for chunk_id in found:
            first = chunk_id
            while first in originals:
                first = originals[first]
            if first != chunk_id:
                found[chunk_id] = known[first]
        return found

    async def made_of(
        self, thread_id: str, chunk_ids: Collection[str], seqs: Collection[int], event_ids: Collection[str]
    ) -> tuple[list[str], list[str]]:
        """The chunks and summaries that hold the text of these chunks or events (by seq and by id), at any remove.

        They are other versions of the chunks (marked, shortened, ticked off, put back by an undone compaction), chunks
        recalled from them, and the summaries of any of these. Reads the log from the earliest of them on.
        """
        brought = [row.seq for row in (await self.rows_at(thread_id, seqs)).values() if row.type in RESTORING]
        versions = await self._older(thread_id, [*chunk_ids, *await self.chunk_ids_at(thread_id, brought)])
        known = lineage.Descent(seqs=set(seqs), events=set(event_ids), chunks={*chunk_ids, *versions})
        summaries: list[str] = []
        first = min((*seqs, *map(_seq_of_chunk, known.chunks)), default=0)
        head = await self._store.head(thread_id)
        types = self.registry.of_chunks("recalled", "versions", "copies", "summaries")
        async for stored in self.walk(thread_id, after=first, upto=head.seq):
            if stored.type not in types:
                continue
            event, reduction = decode_row(thread_id, stored, self.registry)
            if _recalls(event) and known.is_source_of(event, stored.seq):
                made = [chunk.id for chunk in reduction.chunks]
                versions += made
                known.chunks.update(made)
            for chunk in known.follow(reduction.chunks):
                (summaries if chunk.type == ChunkType.COMPACTED else versions).append(chunk.id)
        return versions, summaries

    async def _older(self, thread_id: str, chunk_ids: Collection[str]) -> list[str]:
        """The older versions of these chunks: they hold the same words."""
        copies = self.registry.of_chunks("copies")
        found: dict[str, None] = {}

        def older(chunk: Chunk, kind: str) -> tuple[str, ...]:
            versions = tuple(one for one in chunk.parent_ids if lineage.place(one)[0]) if kind in copies else ()
            found.update(dict.fromkeys(versions))
            return versions

        async for _ in self.levels(thread_id, chunk_ids, older, strict=False):
            pass
        return list(found)


def _recalls(event: Event | UnknownEvent) -> TypeGuard[Event]:
    """Whether an event shows a model the words of others."""
    return isinstance(event, Event) and event.event_chunks == "recalled"


def unlinked(stored: StoredEvent) -> StoredEvent:
    """A row whose hash is not checked when it is decoded."""
    return msgspec.structs.replace(stored, previous=None)


SEQ_DIGITS_MAX = 19
"""No store counts further."""


def _seq_of_chunk(chunk_id: str) -> int:
    if not isinstance(chunk_id, str):
        raise UnknownChunk("read", ascii(chunk_id))
    head, _, tail = chunk_id.partition(".")
    if not (head.isdecimal() and tail.isdecimal() and len(head) <= SEQ_DIGITS_MAX):
        raise UnknownChunk("read", chunk_id)
    return int(head)


MomentLike: TypeAlias = int | str | datetime
"""A seq (0: before the first event), an event's id, or a time: after the last event that was recorded no later."""


async def seq_of(store: Store, thread_id: str, moment: MomentLike) -> int:
    """The seq that a moment names. Raises `SeqNotInLog`, `EventNotFound`, `ThreadNotFound`."""
    head = (await store.head(thread_id)).seq
    match moment:
        case bool():
            raise SeqNotInLog(thread_id, moment, head)
        case int():
            if not 0 <= moment <= head:
                raise SeqNotInLog(thread_id, moment, head)
            return moment
        case str():
            found = await store.find(thread_id, [moment])
            if not found:
                raise EventNotFound(thread_id, moment)
            return found[0].seq
        case datetime() if moment.tzinfo is not None:
            return min(head, await store.seq_at(thread_id, to_us(moment)))
    raise SeqNotInLog(thread_id, moment, head)
