"""The fold of pins: keeps the current ones, keyed by the seq of their event."""

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.views.brief.events import BriefPinned, BriefUnpinned, PinOrigin


class PinRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pin: its text, the event that added it, its origin, and the ids of the chunks it was taken from, if any."""

    seq: int
    event_id: str
    text: str
    origin: PinOrigin = "person"
    agent_id: str = ""
    sources: tuple[str, ...] = ()


class PinsFold:
    """Keeps each pin until it is unpinned, or until it or a chunk that it was taken from is forgotten."""

    name = "brief"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = PinRow
    events: tuple[type[Event], ...] = (BriefPinned, BriefUnpinned, MemoryForget)

    def apply(self, rows: Rows[PinRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case BriefPinned(content=content, origin=origin, agent_id=agent_id, sources=sources):
                rows.put(seq_key(event.seq), PinRow(event.seq, event.id, content, origin, agent_id, sources))
            case BriefUnpinned(pin=pin):
                rows.drop(seq_key(pin))
            case MemoryForget() as forget:
                _drop_forgotten_pins(rows, forget)


def _drop_forgotten_pins(rows: Rows[PinRow], forget: MemoryForget) -> None:
    gone = forget.origins()
    for key, row in list(rows.items()):
        if row.seq in gone or not gone.isdisjoint(_seqs(row)):
            rows.drop(key)


def _seqs(row: PinRow) -> list[int]:
    """Return the seqs of the chunks that a pin was taken from."""
    heads = (source.partition(".")[0] for source in row.sources)
    return [int(head) for head in heads if head.isdecimal()]


PINS = PinsFold()
