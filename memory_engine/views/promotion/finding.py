"""Findings of a user's conversations that were not promoted, and their fold: those that several find count."""

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.views.promotion.events import FindingNoted

FINDINGS_MAX = 500
"""Findings that are kept of a user, the last ones: one that recurs does so within this number of others."""


class NotedFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A snippet that a conversation of the user (`source_thread`) was judged by, and the events it came from there."""

    content: str
    seq: int
    event_id: str
    source_thread: str = ""
    sources: tuple[str, ...] = ()


class FindingsFold:
    """A user's findings, by their seqs."""

    name = "findings"
    version = 1
    mode: ProjectionMode = "inline"
    row = NotedFinding
    events: tuple[type[Event], ...] = (FindingNoted, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[NotedFinding], event: RecordedEvent) -> None:
        """Note a finding, in place of the oldest where there are too many; drop those that are forgotten."""
        match event.event:
            case FindingNoted() as noted:
                finding = NotedFinding(noted.content, event.seq, event.id, noted.source_thread, noted.sources)
                rows.put(seq_key(event.seq), finding)
                if len(rows) > FINDINGS_MAX:
                    rows.drop(next(rows.keys()))
            case MemoryForget(seqs=seqs):
                for seq in seqs:
                    rows.drop(seq_key(seq))


FINDINGS = FindingsFold()
