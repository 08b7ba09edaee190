"""What the layers give back, and take: entries, knowledge, rules, hits, figures."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, cast

import msgspec

from memory_engine.clock import to_datetime
from memory_engine.events import Layer
from memory_engine.projections.layers.entries import EntryRow
from memory_engine.usage import Usage

SearchMode = Literal["hybrid", "keyword"]
RECALLED_MARK = "[recalled from memory]"
"""Begins every text given to a model that holds what was remembered: a result that begins so is nothing new."""


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a layer. What is appended needs `content` alone; the rest is filled in.

    `seq` and `event_id` say which event of the thread made it; `sources` which events, in `source_thread`, it was
    drawn from. `count` is above 0 for a summary: of so many entries. `recalled`: it came out of memory.
    """

    content: str
    id: str = ""
    timestamp: datetime | None = None
    metadata: Mapping[str, object] = {}
    layer: Layer | None = None
    key: str = ""
    condition: str = ""
    recalled: bool = False
    seq: int = 0
    event_id: str = ""
    source_thread: str = ""
    sources: tuple[str, ...] = ()
    count: int = 0

    @property
    def is_summary(self) -> bool:
        """Whether it stands for older entries: `memory.open(entry.id)` reads them."""
        return self.count > 0

    @classmethod
    def of(cls, row: EntryRow) -> "MemoryEntry":
        """From its row."""
        return cls(
            content=row.text,
            id=row.id,
            timestamp=to_datetime(row.timestamp_us),
            metadata=metadata_of(row),
            layer=cast("Layer", row.layer),
            key=row.key,
            condition=row.condition,
            recalled=row.recalled,
            seq=row.seq,
            event_id=row.event_id,
            source_thread=row.source_thread,
            sources=row.sources,
            count=row.count,
        )


class KnowledgeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A fact under its key. To learn one, `key` and `value` are enough."""

    key: str
    value: str
    timestamp: datetime | None = None
    recalled: bool = False
    seq: int = 0
    event_id: str = ""
    source_thread: str = ""
    sources: tuple[str, ...] = ()


class ProceduralRule(msgspec.Struct, frozen=True, kw_only=True):
    """When `condition`, do `action`."""

    condition: str
    action: str
    timestamp: datetime
    id: str
    seq: int
    event_id: str


class MemoryHit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was found. What a search gives is recalled: nothing is learned from it a second time.

    `score`: keyword points or relevance, 0 where the latest were asked for; `why` says it in words.
    `alike` are the ids of entries that say nearly the same and were left out for it.
    """

    entry: MemoryEntry
    score: float
    why: str
    layer: Layer
    alike: tuple[str, ...] = ()
    recalled: bool = True

    @property
    def content(self) -> str:
        """The entry's content."""
        return self.entry.content

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of events: the one that made the entry, and those it was drawn from (in `entry.source_thread`)."""
        return (self.entry.event_id, *self.entry.sources)


class MemoryStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is. Tokens are counted, or estimated at four bytes each; bytes are those of the rows' JSON."""

    working_memory_tokens: int
    episodic_entry_count: int
    semantic_entry_count: int
    procedural_rule_count: int
    total_storage_bytes: int


class CompactReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction did. `covered` entries went into `summary` (or went, without one), `kept` stayed.

    `method` is `"local"` or `"model"`, empty where nothing was done, which `note` explains; `failure` says why
    the model's answer was not used.
    """

    layer: Layer
    covered: int
    kept: int
    summary: MemoryEntry | None = None
    method: str = ""
    model: str = ""
    usage: Usage | None = None
    failure: str = ""
    note: str = ""


def metadata_of(row: EntryRow) -> dict[str, object]:
    """A row's metadata."""
    return msgspec.json.decode(row.metadata, type=dict[str, object]) if row.metadata else {}


def knowledge_of(row: EntryRow) -> KnowledgeEntry:
    """A semantic row."""
    return KnowledgeEntry(
        key=row.key,
        value=row.content,
        timestamp=to_datetime(row.timestamp_us),
        recalled=row.recalled,
        seq=row.seq,
        event_id=row.event_id,
        source_thread=row.source_thread,
        sources=row.sources,
    )


def rule_of(row: EntryRow) -> ProceduralRule:
    """A procedural row."""
    return ProceduralRule(
        condition=row.condition,
        action=row.content,
        timestamp=to_datetime(row.timestamp_us),
        id=row.id,
        seq=row.seq,
        event_id=row.event_id,
    )
