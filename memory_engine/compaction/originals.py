"""The originals of summaries, as compactions read them: in the order in which they stood."""

from collections.abc import Mapping, Sequence

import msgspec

from memory_engine.chunks import REDACTED, Chunk, ChunkType
from memory_engine.clock import to_datetime
from memory_engine.compaction.forgotten import Forgettings
from memory_engine.reading import LogReader, covered_in, opened
from memory_engine.records import StoredEvent


class LogOriginals(msgspec.Struct, frozen=True):
    """The log of one thread, as a compaction reads it (see `running.Originals`)."""

    reader: LogReader
    thread_id: str

    async def covered_by(self, summary: Chunk, tokens_max: int) -> Sequence[Chunk] | None:
        """The originals, in order, through summaries of summaries.

        `None` if they take more than `tokens_max`, or if some of them were forgotten.
        """
        known: dict[str, Chunk] = {}
        tokens, waiting = 0, list(summary.parent_ids)
        if summary.status == REDACTED:
            return None
        while waiting:
            found = await self.reader.chunks(self.thread_id, waiting)
            known |= found
            tokens += sum(chunk.tokens for chunk in found.values() if chunk.type != ChunkType.COMPACTED)
            if tokens > tokens_max or any(_is_redacted(chunk) for chunk in found.values()):
                return None
            waiting = covered_in(found.values(), known)
        return list(opened(summary.parent_ids, known))

    async def afresh(self, chunk_ids: Sequence[str], forgettings: Forgettings) -> list[Chunk]:
        """The originals of these chunks, however many, without what was forgotten."""
        known: dict[str, Chunk] = {}
        waiting = list(chunk_ids)
        while waiting:
            found = await self.reader.chunks(self.thread_id, waiting)
            known |= found
            waiting = covered_in(found.values(), known)
        whole = (forgettings.kept(chunk, since=chunk.seq) for chunk in opened(chunk_ids, known))
        return [chunk for chunk in whole if chunk is not None]

    async def times(self, chunks: Sequence[Chunk]) -> Mapping[str, str]:
        """ISO times of the events behind chunks: when it happened, else when it was recorded.

        Of a chunk that an undone compaction had put back, it is the time of the original.
        """
        first = await self.reader.as_first(self.thread_id, chunks)
        rows = await self.reader.rows_at(self.thread_id, {chunk.seq for chunk in first.values()})
        return {chunk_id: _time(rows[chunk.seq]) for chunk_id, chunk in first.items()}


def _time(row: StoredEvent) -> str:
    return to_datetime(row.occurred_at_us if row.occurred_at_us is not None else row.recorded_at_us).isoformat()


def _is_redacted(chunk: Chunk) -> bool:
    return chunk.type == ChunkType.COMPACTED and chunk.status == REDACTED
