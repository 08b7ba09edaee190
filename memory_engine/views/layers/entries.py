"""The values that layers take and give: entries, knowledge, rules, hits, figures; objects, mappings, plain texts."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal, cast

import msgspec

from memory_engine.core.clock import checked_us, to_datetime, to_us
from memory_engine.core.codec import encode_json
from memory_engine.core.events.delivery import Destination
from memory_engine.core.ids import check_identifier
from memory_engine.errors import InvalidMemory
from memory_engine.errors.effects import Usage
from memory_engine.views.layers.events import Layer, MemoryAppended, MemoryShared
from memory_engine.views.layers.fold import LAYER_NAMES, EntryRow
from memory_engine.views.layers.origin import metadata_in

SearchMode = Literal["hybrid", "keyword"]
RECALLED_MARK = "[recalled from memory]"
"""The prefix of every text with recalled memory that a model gets: a result that begins so is not new."""


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a layer. To append one, `content` is enough; the rest is filled in.

    `seq` and `event_id` say which event of the thread made it; `sources` which events, in `source_thread`, it was drawn
    from. `count` is above 0 for a summary: the number of entries in it. `recalled`: it came from memory.
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
        """Whether it summarises older entries: `memory.open(entry.id)` reads them."""
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
    """An entry that was found. It counts as recalled: nothing is learned from it a second time.

    `score`: keyword points or relevance, 0 if you asked for the latest; `why` says it in words. `alike` are the ids of
    nearly identical entries that were left out in its favour.
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
    """How much memory holds. Tokens are counted, or estimated at four bytes each; bytes are those of the rows' JSON."""

    working_memory_tokens: int
    episodic_entry_count: int
    semantic_entry_count: int
    procedural_rule_count: int
    total_storage_bytes: int


class CompactReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a compaction. `covered` entries went into `summary` (or were removed, without one), `kept` stayed.

    `method` is `"local"` or `"model"`, empty if nothing was done, which `note` explains; `failure` says why the model's
    answer was not used.
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
    return metadata_in(row.metadata)


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


_FIELDS = frozenset({"id", "timestamp", "content", "metadata", "key", "condition", "recalled"})
MILLISECONDS_MIN = 100_000_000_000
"""Numbers below are refused as times: as milliseconds they lie before March 1973, so they are surely seconds."""
MILLISECONDS_MAX = 253_402_300_799_999


def check_layer(layer: Layer) -> Layer:
    """The layer. Raises `InvalidMemory` for an unknown name."""
    if layer not in LAYER_NAMES:
        raise InvalidMemory("layer", layer, f"there are {', '.join(LAYER_NAMES)}")
    return layer


def check_layers(layer: "Layer | Sequence[Layer] | None") -> tuple[Layer, ...]:
    """The layers, all for `None`, each once. Raises `InvalidMemory` for an unknown name."""
    if layer is None:
        return LAYER_NAMES
    if isinstance(layer, str):
        return (check_layer(layer),)
    if not isinstance(layer, Collection):
        raise InvalidMemory("layer", layer, f"there are {', '.join(LAYER_NAMES)}")
    return tuple(dict.fromkeys(check_layer(one) for one in layer))


def appended_event(
    layer: Layer, entry: "str | MemoryEntry | Mapping[str, object]", given: MemoryEntry, capacity: int
) -> MemoryAppended:
    """The event for an entry; values in `given` win over those of the entry.

    Raises `InvalidMemory`, and `InvalidIdentifier` for a key that cannot be one.
    """
    own = _as_entry(entry)
    if not isinstance(given.metadata, Mapping):
        raise InvalidMemory("metadata", given.metadata, "it is a mapping")
    metadata = {**own.metadata, **given.metadata}
    entry_id = given.id or own.id
    key = given.key or own.key or _string_or_json(metadata.get("key"))
    condition = given.condition or own.condition or _string_or_json(metadata.get("condition"))
    if layer == "semantic" and (key or entry_id):
        check_identifier("key of an entry", key or entry_id)
    return MemoryAppended(
        layer=layer,
        content=own.content,
        key=key if layer == "semantic" else "",
        condition=condition if layer == "procedural" else "",
        metadata=metadata,
        entry_id=entry_id,
        timestamp_us=_microseconds(given.timestamp or own.timestamp),
        capacity=capacity,
        recalled=given.recalled or own.recalled,
        source_thread=own.source_thread,
        sources=own.sources,
    )


def knowledge_event(
    key: "str | KnowledgeEntry | Mapping[str, object]", value: str | None, *, recalled: bool
) -> MemoryAppended:
    """The event for a fact. Raises `InvalidMemory`, and `InvalidIdentifier` for a key that cannot be one."""
    if isinstance(key, KnowledgeEntry):
        fact = key
    elif isinstance(key, Mapping):
        fact = KnowledgeEntry(
            key=_string_or_json(key.get("key")),
            value=_string_or_json(key.get("value")),
            timestamp=moment_of(key.get("timestamp")),
        )
    elif value is None:
        raise InvalidMemory("value", value, "learn(key, value), or learn(KnowledgeEntry(key=…, value=…))")
    else:
        fact = KnowledgeEntry(key=key, value=value)
    check_identifier("key of an entry", fact.key)
    return MemoryAppended(
        layer="semantic",
        content=fact.value,
        key=fact.key,
        timestamp_us=_microseconds(fact.timestamp),
        recalled=recalled or fact.recalled,
        source_thread=fact.source_thread,
        sources=fact.sources,
    )


def shared_event(
    entry: MemoryAppended, destination: Destination, source_thread: str, sources: tuple[str, ...] = ()
) -> MemoryShared:
    """The same entry for an agent's memory, from this thread."""
    return MemoryShared(
        destination=destination,
        layer=entry.layer,
        content=entry.content,
        key=entry.key or (entry.entry_id if entry.layer == "semantic" else ""),
        condition=entry.condition,
        metadata=entry.metadata,
        entry_id=entry.entry_id,
        timestamp_us=entry.timestamp_us,
        capacity=entry.capacity,
        recalled=entry.recalled,
        source_thread=source_thread,
        sources=sources,
    )


def _as_entry(entry: "str | MemoryEntry | Mapping[str, object]") -> MemoryEntry:
    if isinstance(entry, MemoryEntry):
        return entry
    if isinstance(entry, str):
        return MemoryEntry(content=entry)
    fields = _mapping("entry", entry)
    metadata = _mapping("metadata", fields.get("metadata") or {})
    others = {name: value for name, value in fields.items() if name not in _FIELDS}
    content = fields.get("content")
    return MemoryEntry(
        content=_string_or_json(content) if content is not None else _rendered(others),
        id=_string_or_json(fields.get("id")),
        timestamp=moment_of(fields.get("timestamp")),
        metadata={**others, **metadata},
        key=_string_or_json(fields.get("key")),
        condition=_string_or_json(fields.get("condition")),
        recalled=fields.get("recalled") is True,
    )


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidMemory(name, value, "it is a text or a mapping" if name == "entry" else "it is a mapping")
    return value


def _rendered(fields: Mapping[str, object]) -> str:
    """`iteration: 42, action: analyzed dataset`."""
    if not fields:
        raise InvalidMemory("content", None, "an entry has a content, or fields to make one of")
    return ", ".join(f"{name}: {_string_or_json(value)}" for name, value in fields.items())


def _string_or_json(value: object) -> str:
    """A string unchanged, `None` as the empty text, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode_json(value).decode()


def moment_of(value: object) -> datetime | None:
    """A time from a caller: a datetime, or milliseconds since 1970. Raises `InvalidMemory`."""
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, int | float) and MILLISECONDS_MIN <= abs(value) <= MILLISECONDS_MAX:
        return to_datetime(round(value * 1000))
    raise InvalidMemory("timestamp", value, "it is a datetime with a time zone, or milliseconds since 1970")


def _microseconds(value: object) -> int | None:
    moment = moment_of(value)
    if moment is None:
        return None
    try:
        return checked_us(to_us(moment))
    except ValueError as error:
        raise InvalidMemory("timestamp", moment, str(error)) from None
