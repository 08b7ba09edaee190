"""The fold of pins: those that hold, by the seq of their event."""

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.views.brief.events import BriefPinned, BriefUnpinned, PinOrigin


class PinRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pin: its text, the event that brought it, whose it is, and the chunk that it was taken from, if any."""

    seq: int
    event_id: str
    text: str
    origin: PinOrigin = "person"
    by: str = ""
    chunk_id: str = ""


class PinsFold:
    """Keeps each pin until it is unpinned, or it or the chunk that it was taken from is forgotten."""

    name = "brief"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = PinRow
    events: tuple[type[Event], ...] = (BriefPinned, BriefUnpinned, MemoryForget)

    def apply(self, rows: Rows[PinRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case BriefPinned(content=content, origin=origin, by=by, chunk_id=chunk_id):
                rows.put(seq_key(event.seq), PinRow(event.seq, event.id, content, origin, by, chunk_id))
            case BriefUnpinned(pin=pin):
                rows.drop(seq_key(pin))
            case MemoryForget() as forget:
                _forget(rows, forget)


def _forget(rows: Rows[PinRow], forget: MemoryForget) -> None:
    gone = forget.origins()
    for key, row in list(rows.items()):
        if row.seq in gone or (row.chunk_id and int(row.chunk_id.partition(".")[0]) in gone):
            rows.drop(key)


PINS = PinsFold()
