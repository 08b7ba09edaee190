"""Reading the log: pages of events, states in the past, originals of summaries."""

from collections.abc import AsyncIterator, Mapping, Sequence

from memory_engine.chunks import Chunk, ChunkType
from memory_engine.clock import to_datetime
from memory_engine.codec import decode_reduction, resolve_chunk
from memory_engine.errors import UnknownChunk
from memory_engine.events.base import Event, UnknownEvent
from memory_engine.events.registry import EventRegistry
from memory_engine.log import fold, read_back
from memory_engine.persistence import Store
from memory_engine.records import RecordedEvent, StoredEvent
from memory_engine.state import Placed, State, StateDraft

PAGE = 512
"""Rows read in one go."""


class LogReader:
    """Reads threads of one store with one engine's event types."""

    def __init__(self, store: Store, registry: EventRegistry) -> None:
        self._store = store
        self._registry = registry

    async def pages(self, thread_id: str, *, after: int, upto: int) -> AsyncIterator[Sequence[StoredEvent]]:
        """Raw rows with `after` < seq <= `upto`, in order, a page at a time."""
        while after < upto:
            page = await self._store.read(thread_id, after=after, upto=upto, limit=PAGE)
            if not page:
                return
            yield page
            after = page[-1].seq

    def decode(self, thread_id: str, stored: StoredEvent) -> RecordedEvent:
        """A row as users see it."""
        return read_back(thread_id, stored, self._registry)

    async def events(self, thread_id: str, *, after: int, upto: int) -> AsyncIterator[RecordedEvent]:
        """Decoded events, in order."""
        async for page in self.pages(thread_id, after=after, upto=upto):
            for stored in page:
                yield read_back(thread_id, stored, self._registry)

    async def folded(self, thread_id: str, upto: int) -> StateDraft:
        """The recorded operations up to a seq, applied to nothing; chunks lack what they share with events."""
        draft = State().draft()
        async for page in self.pages(thread_id, after=0, upto=upto):
            fold(draft, page)
        return draft

    async def state_at(self, thread_id: str, seq: int) -> State:
        """The state after the event at `seq`: recorded operations only, no reducer runs."""
        draft = await self.folded(thread_id, seq)
        placed = list(draft.placed())
        chunks = await self.chunks(thread_id, [place.chunk.id for place in placed])
        whole = State().draft()
        for place in placed:
            whole.insert(Placed(chunks[place.chunk.id], place.key, place.container))
        return whole.freeze(draft.seq)

    async def chunks(self, thread_id: str, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Chunks by id, wherever in the log they are. Raises `UnknownChunk` for one that never was."""
        found: dict[str, Chunk] = {}
        for seq in sorted({_seq(chunk_id) for chunk_id in chunk_ids}):
            for stored in await self._store.read(thread_id, after=seq - 1, upto=seq, limit=1):
                found.update((chunk.id, chunk) for chunk in self._chunks_of(stored))
        missing = [chunk_id for chunk_id in chunk_ids if chunk_id not in found]
        if missing:
            raise UnknownChunk("read", missing[0])
        return {chunk_id: found[chunk_id] for chunk_id in chunk_ids}

    def _chunks_of(self, stored: StoredEvent) -> list[Chunk]:
        event: Event | UnknownEvent = self._registry.decode(stored.type, stored.version, stored.payload)
        return [resolve_chunk(record, event) for record in decode_reduction(stored.record).chunks]

    async def covered_by(self, thread_id: str, summary: Chunk, tokens_max: int) -> Sequence[Chunk] | None:
        """The originals that a summary stands for, through summaries of summaries, in order.

        `None` if they take more than `tokens_max` tokens together.
        """
        originals: list[Chunk] = []
        waiting = list(summary.parent_ids)
        tokens = 0
        while waiting:
            found = await self.chunks(thread_id, waiting)
            waiting = []
            for chunk in found.values():
                if chunk.type == ChunkType.COMPACTED:
                    waiting += chunk.parent_ids
                else:
                    originals.append(chunk)
                    tokens += chunk.tokens
            if tokens > tokens_max:
                return None
        return sorted(originals, key=lambda chunk: tuple(map(int, chunk.id.split("."))))

    async def times(self, thread_id: str, chunks: Sequence[Chunk]) -> Mapping[str, str]:
        """ISO times of the events behind chunks: when it happened, else when it was recorded."""
        times: dict[str, str] = {}
        if chunks:
            seqs = {chunk.seq: chunk for chunk in chunks}
            rows: dict[int, StoredEvent] = {}
            async for page in self.pages(thread_id, after=min(seqs) - 1, upto=max(seqs)):
                rows.update((row.seq, row) for row in page if row.seq in seqs)
            for chunk in chunks:
                row = rows[chunk.seq]
                us = row.occurred_at_us if row.occurred_at_us is not None else row.recorded_at_us
                times[chunk.id] = to_datetime(us).isoformat()
        return times


def _seq(chunk_id: str) -> int:
    head, _, tail = chunk_id.partition(".")
    if not (head.isdecimal() and tail.isdecimal()):
        raise UnknownChunk("read", chunk_id)
    return int(head)
