"""Reading the origins of chunks: their events, the chunks before them, and the events behind those, in any thread.

Level by level, each row once. Other threads are read where an event names them, or where they are of the same user or
agent, and never those of another tenant.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from attrs import define, field, frozen

from memory_engine.core.aside import aside
from memory_engine.core.chunks import Chunk
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import UnknownEvent
from memory_engine.core.events.compaction import CompactionCompleted, CompactionStarted
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.events.roles import Source, sources_in
from memory_engine.core.lineage import place, taken_chunks
from memory_engine.core.quarantine import Quarantined
from memory_engine.core.records import RecordedEvent
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import ThreadNotFound, UnknownChunk
from memory_engine.replay.lineage import removed_at
from memory_engine.replay.withheld import standing_in
from memory_engine.runtime.handle import PastHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.protocol import ThreadFilter
from memory_engine.views.promotion.events import PromotionDecided

CHUNKS_MAX = 500
"""Chunks that are read for one explanation unless more are asked for, level by level: others are opened one by one."""
RELATED_MAX = 1_000
"""Threads that are searched for an event whose thread is not named."""
ARRIVED = "fact:"
"""The prefix of the ids of events that another thread delivered."""

ChunkRef = tuple[str, str]
"""A thread's id and a chunk's."""
EventRef = tuple[str, int]
"""A thread's id and a seq."""


@frozen
class Link:
    """A link from an event to one that it comes from (`None`: not found), by its id. `relation`: its kind."""

    relation: str
    event_id: str
    event: EventRef | None = None


@define
class LineageTrace:
    """Everything read for one explanation. Chunks beyond the limit are missing in `chunks`."""

    chunks: dict[ChunkRef, Chunk] = field(factory=dict)
    events: dict[EventRef, RecordedEvent] = field(factory=dict)
    links: dict[EventRef, tuple[Link, ...]] = field(factory=dict)
    started: dict[EventRef, RecordedEvent] = field(factory=dict)
    live: dict[str, Collection[str]] = field(factory=dict)
    """The ids of the chunks in the state, by thread."""
    forgotten: dict[str, list[tuple[int, MemoryForget]]] = field(factory=dict)
    gone: dict[ChunkRef, int] = field(factory=dict)
    quarantines: dict[str, Sequence[tuple[Quarantined, str]]] = field(factory=dict)
    """The quarantines in force by thread, each with the ISO time when it began."""

    def quarantined_by(self, recorded: RecordedEvent) -> dict[str, object]:
        """The first quarantine in force that hides an event, as facts; empty for none."""
        for one, since in self.quarantines.get(recorded.thread_id, ()):
            if recorded.id in one.hidden:
                return {"source": one.source, "by": one.by, "since": since, "reason": one.reason, "seq": one.seqs[0]}
        return {}

    def forgotten_by(self, thread_id: str, chunk: Chunk) -> tuple[int, MemoryForget] | None:
        """The seq and event that forgot a chunk: by its id, its event's, or a chunk that it sums up."""
        for seq, event in self.forgotten.get(thread_id, ()):
            if seq > chunk.seq and (chunk.id in (*event.chunk_ids, *event.summaries) or chunk.seq in event.seqs):
                return seq, event
        return None

    def is_live(self, thread_id: str, chunk_id: str) -> bool:
        """Whether a chunk is in the state as of now (that is: of the moment that is asked about)."""
        return chunk_id in self.live.get(thread_id, ())


class Tracer:
    """Reads for one explanation, as of a moment of one thread."""

    def __init__(self, home: PastHandle, chunks_max: int) -> None:
        self._kernel: Kernel = home.kernel
        self._chunks_max = chunks_max
        self._home = home
        self._records: dict[str, ThreadRecord | None] = {}
        self._related: list[str] | None = None
        self._pasts: dict[str, PastHandle] = {home.id: home}
        self.trace = LineageTrace()

    async def follow(self, chunks: Iterable[ChunkRef], events: Iterable[EventRef] = ()) -> None:
        """Read these chunks, and all that they come from. Raises `UnknownChunk` for one that the log does not hold."""
        asked = list(chunks)
        waiting_chunks: list[ChunkRef] = list(dict.fromkeys(asked))
        waiting_events = list(dict.fromkeys(events))
        for thread_id, chunk_id in asked:
            seq = place(chunk_id)[0]
            if not seq or (thread_id == self._home.id and seq > self._home.seq):
                raise UnknownChunk("read", chunk_id)
        room = max(0, self._chunks_max - len(self.trace.chunks))
        first = [ref for ref in waiting_chunks if ref not in self.trace.chunks][:room]
        while waiting_chunks or waiting_events:
            level = [ref for ref in waiting_chunks if ref not in self.trace.chunks][: self._room]
            read = await self._read({*waiting_events, *((ref[0], place(ref[1])[0]) for ref in level)})
            waiting_chunks = self._take(level)
            linked, snippets = await self._link(read)
            waiting_chunks += snippets
            waiting_events = [ref for ref in linked if ref not in self.trace.events]
        for ref in first:
            if ref not in self.trace.chunks:
                raise UnknownChunk("read", ref[1])

    async def settle(self) -> None:
        """Find out which chunks are live, which were forgotten, and which events took away those that are not."""
        trace = self.trace
        for thread_id in {ref[0] for ref in trace.events}:
            trace.forgotten[thread_id] = await self._forgettings(thread_id)
            trace.quarantines[thread_id] = await self._quarantines(thread_id)
        for thread_id in {ref[0] for ref in trace.chunks}:
            trace.live[thread_id] = await self._live(thread_id, (await self._past(thread_id)).seq)
        told: dict[str, set[str]] = defaultdict(set)
        for thread_id, chunk_id in trace.chunks:
            told[thread_id].add(chunk_id)
        for (thread_id, seq), event in trace.events.items():
            for chunk_id in told[thread_id].intersection(one.chunk for one in taken_chunks(event.operations)):
                trace.gone.setdefault((thread_id, chunk_id), seq)
        unknown: dict[str, list[str]] = defaultdict(list)
        for thread_id, chunk_id in trace.chunks:
            if not trace.is_live(thread_id, chunk_id) and (thread_id, chunk_id) not in trace.gone:
                unknown[thread_id].append(chunk_id)
        for thread_id, chunk_ids in unknown.items():
            past = await self._past(thread_id)
            for chunk_id, seq in (await removed_at(past, chunk_ids)).items():
                trace.gone[thread_id, chunk_id] = seq
        await self._read({(ref[0], seq) for ref, seq in trace.gone.items()})

    # chunks and events

    async def _read(self, refs: Collection[EventRef]) -> list[EventRef]:
        """Decode the existing events among these that were not read yet."""
        seqs: dict[str, set[int]] = defaultdict(set)
        for thread_id, seq in refs:
            if (thread_id, seq) not in self.trace.events:
                seqs[thread_id].add(seq)
        read = []
        for thread_id, wanted in seqs.items():
            for seq, stored in (await self._kernel.reader.rows_at(thread_id, wanted)).items():
                self.trace.events[thread_id, seq] = self._kernel.reader.decode(thread_id, stored)
                read.append((thread_id, seq))
        return read

    @property
    def _room(self) -> int:
        """The number of chunks that may still be read."""
        return max(0, self._chunks_max - len(self.trace.chunks))

    def _take(self, level: Sequence[ChunkRef]) -> list[ChunkRef]:
        """Note the chunks of a level; those that they come from, as many as may be read."""
        parents: list[Iterator[ChunkRef]] = []
        for thread_id, chunk_id in level:
            event = self.trace.events.get((thread_id, place(chunk_id)[0]))
            chunk = next((chunk for chunk in event.chunks if chunk.id == chunk_id), None) if event is not None else None
            if chunk is not None:
                self.trace.chunks[thread_id, chunk_id] = chunk
                parents.append((thread_id, parent) for parent in chunk.parent_ids if place(parent)[0])
        unread = (ref for ref in chain.from_iterable(parents) if ref not in self.trace.chunks)
        found: dict[ChunkRef, None] = {}
        while len(found) < self._room and (ref := next(unread, None)) is not None:
            found[ref] = None
        return list(found)

    # links

    async def _link(self, refs: Sequence[EventRef]) -> tuple[list[EventRef], list[ChunkRef]]:
        """Find what these events come from: events, and the snippets that were judged."""
        events: list[EventRef] = []
        chunks: list[ChunkRef] = []
        for ref in refs:
            recorded = self.trace.events[ref]
            links = [*await self._caused(recorded), *await self._sources(recorded), *_named_links(recorded)]
            by_id = {link.event_id: link for link in reversed(links)}  # the first of two to one event wins
            self.trace.links[ref] = tuple(reversed(by_id.values()))
            events += [link.event for link in links if link.event is not None]
            match recorded.event:
                case PromotionDecided(snippet=snippet, source_thread=source) if source in ("", recorded.thread_id):
                    chunks.append((recorded.thread_id, snippet))
                case CompactionCompleted(compaction_id=compaction_id):
                    await self._find_started(recorded, compaction_id)
        return events, chunks

    async def _caused(self, recorded: RecordedEvent) -> list[Link]:
        cause = recorded.causation_id
        if not cause:
            return []
        relation = "delivered by" if recorded.id.startswith(ARRIVED) else "caused by"
        source = getattr(recorded.event, "source_thread", "")
        found = await self._find(recorded, [cause], source)
        return [Link(relation, cause, found.get(cause))]

    async def _sources(self, recorded: RecordedEvent) -> list[Link]:
        """The events that a fact was drawn from, or that a note recalls."""
        named = getattr(recorded.event, "sources", ())
        sources = [source for source in named if isinstance(source, str)] if isinstance(named, tuple) else []
        found = await self._find(recorded, sources, getattr(recorded.event, "source_thread", "")) if sources else {}
        return [Link("drawn from", source, found.get(source)) for source in sources]

    async def _find(self, recorded: RecordedEvent, event_ids: Sequence[str], source: object) -> dict[str, EventRef]:
        """Find events: in the thread itself, in the named one, in those of the same user or agent."""
        found: dict[str, EventRef] = {}
        missing = list(dict.fromkeys(event_ids))
        first = [source] if isinstance(source, str) and source else []
        for thread_id in (*first, recorded.thread_id):
            missing = await self._find_in(thread_id, missing, found)
        if missing and recorded.correlation_id:
            for thread_id, stored in await self._kernel.store.correlated(recorded.correlation_id, limit=RELATED_MAX):
                if stored.id in missing and await self.may_read(thread_id):
                    found[stored.id] = (thread_id, stored.seq)
            missing = [event_id for event_id in missing if event_id not in found]
        if missing:
            for thread_id in await self._relatives():
                missing = await self._find_in(thread_id, missing, found)
        return found

    async def _find_in(self, thread_id: str, missing: list[str], found: dict[str, EventRef]) -> list[str]:
        if not missing or not await self.may_read(thread_id):
            return missing
        for stored in await self._kernel.store.find(thread_id, missing):
            found[stored.id] = (thread_id, stored.seq)
        return [event_id for event_id in missing if event_id not in found]

    async def may_read(self, thread_id: str) -> bool:
        """Whether a thread is there, and of the same tenant."""
        if thread_id == self._home.id:
            return True
        own, other = await self._record(self._home.id), await self._record(thread_id)
        return own is not None and other is not None and own.tenant_id == other.tenant_id

    async def _record(self, thread_id: str) -> ThreadRecord | None:
        if thread_id not in self._records:
            found = await self._kernel.store.threads(ThreadFilter(id=thread_id))
            self._records[thread_id] = found[0][0] if found else None
        return self._records[thread_id]

    async def _relatives(self) -> list[str]:
        """The threads of the same user, the same agent, and the agents and the memory of the same tenant."""
        if self._related is None:
            own = await self._record(self._home.id)
            if own is None:
                return []
            filters = [
                ThreadFilter(tenant_id=own.tenant_id, kind=kind, limit=RELATED_MAX) for kind in ("agent", "tenant")
            ]
            if own.agent_id:
                filters.insert(0, ThreadFilter(tenant_id=own.tenant_id, agent_id=own.agent_id, limit=RELATED_MAX))
            if own.user_id:
                filters.insert(0, ThreadFilter(tenant_id=own.tenant_id, user_id=own.user_id, limit=RELATED_MAX))
            ids: dict[str, None] = {}
            for where in filters:
                for record, _ in await self._kernel.store.threads(where):
                    self._records[record.id] = record
                    ids[record.id] = None
            ids.pop(self._home.id, None)
            self._related = list(ids)[:RELATED_MAX]
        return self._related

    async def _find_started(self, completed: RecordedEvent, compaction_id: str) -> None:
        thread_id, seq = completed.thread_id, completed.seq
        types = {CompactionStarted.event_type}
        rows = await self._kernel.reader.walk(thread_id, after=max(0, seq - 9), upto=seq - 1, types=types).all()
        for stored in reversed(rows):
            started = self._kernel.reader.decode(thread_id, stored)
            if isinstance(started.event, CompactionStarted) and started.event.compaction_id == compaction_id:
                self.trace.started[thread_id, seq] = started
                return

    # later fates

    async def _past(self, thread_id: str) -> PastHandle:
        """The home thread at the moment of the question, any other at its head."""
        if thread_id not in self._pasts:
            head = await self._kernel.store.head(thread_id)
            self._pasts[thread_id] = PastHandle(self._kernel, thread_id, head.seq)
        return self._pasts[thread_id]

    async def _live(self, thread_id: str, seq: int) -> Collection[str]:
        """The ids of the chunks in a state: the store has those of the latest at hand."""
        loaded = await self._kernel.store.load(thread_id, sources=False)
        if loaded.head.seq == seq:
            found = await aside(lambda: frozenset(row.chunk_id for row in loaded.live), items=len(loaded.live))
            await aside(loaded.let_go, items=len(loaded.live))
            return found
        state = await self._kernel.reader.state_at(thread_id, seq)
        return await aside(lambda: frozenset(placed.chunk.id for placed in state.placed()), items=len(state))

    async def _quarantines(self, thread_id: str) -> Sequence[tuple[Quarantined, str]]:
        """Those in force now."""
        try:
            standing = (await standing_in(self._kernel, thread_id)).values()
        except ThreadNotFound:
            return ()
        rows = await self._kernel.reader.rows_at(thread_id, {one.seqs[0] for one in standing})
        return [(one, to_datetime(rows[one.seqs[0]].recorded_at_us).isoformat()) for one in standing]

    async def _forgettings(self, thread_id: str) -> list[tuple[int, MemoryForget]]:
        """Those after the moment of the question too: no text that they forgot is shown."""
        try:
            events = (await self._kernel.reader.forgotten(thread_id)).events
        except ThreadNotFound:
            return []
        return [(one.seq, one.event) for one in events if isinstance(one.event, MemoryForget)]


def _named_links(recorded: RecordedEvent) -> list[Link]:
    """The events of its own thread that an event names by their seqs: those it sums up, ends, or was drawn from."""
    if isinstance(recorded.event, UnknownEvent):
        return []
    named = (value for source, value in sources_in(recorded.event) if source is Source.SEQ)
    seqs = [one if one >= 0 else recorded.seq + one for one in named if isinstance(one, int)]
    earlier = [seq for seq in dict.fromkeys(seqs) if 0 < seq < recorded.seq]
    return [Link("drawn from", f"#{seq}", (recorded.thread_id, seq)) for seq in earlier]
