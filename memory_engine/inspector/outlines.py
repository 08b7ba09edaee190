"""The bones of a log: its compactions and what became of them, read once and then as the log grows."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from memory_engine.chunks import ChunkType
from memory_engine.events.compaction import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactionUndone,
)
from memory_engine.persistence import Head
from memory_engine.reading import LogReader
from memory_engine.records import RecordedEvent

TYPES = frozenset(
    cls.event_type
    for cls in (CompactionStarted, CompactionCompleted, CompactionFailed, CompactionAbandoned, CompactionUndone)
)
THREADS_MAX = 64


@frozen(kw_only=True)
class Compaction:
    """A compaction as its events tell it. `started` and `seq` are where it began and ended, `seq` 0: it has not."""

    id: str
    started: int = 0
    seq: int = 0
    status: str = "running"
    covers: int = 0
    tokens: tuple[int, int] = (0, 0)
    summaries: tuple[str, ...] = ()
    compactor: str = ""

    def as_data(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "id": self.id,
            "started": self.started or self.seq,
            "seq": self.seq or None,
            "status": self.status,
            "covers": self.covers,
            "tokens": list(self.tokens),
            "summaries": list(self.summaries),
            "compactor": self.compactor,
        }


class Outlines:
    """The compactions of one engine's threads."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, tuple[int, Mapping[str, Compaction]]] = OrderedDict()

    async def compactions(self, thread_id: str, head: Head) -> Sequence[Compaction]:
        """The compactions of a log up to its head, in the order of their beginnings.

        One that began and has no end in the log runs while the head says so; else it was abandoned.
        """
        read, known = self._kept.get(thread_id, (0, {}))
        if read < head.seq:
            found = dict(known)
            async for page in self._reader.pages(thread_id, after=read, upto=head.seq, types=TYPES):
                for stored in page:
                    _apply(found, self._reader.decode(thread_id, stored))
            read, known = head.seq, found
            self._kept[thread_id] = read, known
            if len(self._kept) > THREADS_MAX:
                self._kept.popitem(last=False)
        return [
            evolve(one, status="abandoned") if one.status == "running" and one.started != head.open_compaction else one
            for one in sorted(known.values(), key=lambda one: one.started or one.seq)
        ]


def _apply(found: dict[str, Compaction], recorded: RecordedEvent) -> None:
    event, seq = recorded.event, recorded.seq
    match event:
        case CompactionStarted():
            covers = len(event.chunk_ids)
            found[event.compaction_id] = Compaction(
                id=event.compaction_id, started=seq, covers=covers, compactor=event.compactor
            )
        case CompactionCompleted():
            found[event.compaction_id] = evolve(
                _known(found, event.compaction_id),
                seq=seq,
                status="completed",
                covers=sum(len(replacement.covers) for replacement in event.replacements),
                tokens=(event.tokens_before, event.tokens_after),
                summaries=tuple(chunk.id for chunk in recorded.chunks if chunk.type == ChunkType.COMPACTED),
                compactor=event.compactor,
            )
        case CompactionFailed():
            known = _known(found, event.compaction_id)
            found[event.compaction_id] = evolve(known, seq=seq, status="failed", compactor=event.compactor)
        case CompactionAbandoned():
            found[event.compaction_id] = evolve(_known(found, event.compaction_id), seq=seq, status="abandoned")
        case CompactionUndone():
            found[event.compaction_id] = evolve(_known(found, event.compaction_id), status="undone")


def _known(found: Mapping[str, Compaction], compaction_id: str) -> Compaction:
    return found.get(compaction_id) or Compaction(id=compaction_id)
