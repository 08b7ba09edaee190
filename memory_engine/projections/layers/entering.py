"""What callers give for an entry, as an event: objects, mappings and plain texts."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from memory_engine.clock import to_datetime, to_us
from memory_engine.codec import encode_json
from memory_engine.errors import InvalidMemory
from memory_engine.events import Destination, Layer, MemoryAppended, MemoryShared
from memory_engine.ids import check_identifier
from memory_engine.projections.layers.entries import LAYER_NAMES
from memory_engine.projections.layers.values import KnowledgeEntry, MemoryEntry

_FIELDS = frozenset({"id", "timestamp", "content", "metadata", "key", "condition", "recalled"})
MILLISECONDS_MIN = 100_000_000_000
"""Numbers below are refused as times: milliseconds would lie before March 1973, and they are seconds, surely."""
MILLISECONDS_MAX = 253_402_300_799_999


def check_layer(layer: Layer) -> Layer:
    """The layer. Raises `InvalidMemory` for a name that none has."""
    if layer not in LAYER_NAMES:
        raise InvalidMemory("layer", layer, f"there are {', '.join(LAYER_NAMES)}")
    return layer


def check_layers(layer: "Layer | Sequence[Layer] | None") -> tuple[Layer, ...]:
    """The layers, all for `None`, each once. Raises `InvalidMemory` for a name that none has."""
    if layer is None:
        return LAYER_NAMES
    if isinstance(layer, str):
        return (check_layer(layer),)
    return tuple(dict.fromkeys(check_layer(one) for one in layer))


def appended_event(
    layer: Layer, entry: "str | MemoryEntry | Mapping[str, object]", given: MemoryEntry, capacity: int
) -> MemoryAppended:
    """The event for an entry; what `given` says goes before what the entry says.

    Raises `InvalidMemory`, and `InvalidIdentifier` for a key that cannot be one.
    """
    own = _as_entry(entry)
    metadata = {**own.metadata, **given.metadata}
    entry_id = given.id or own.id
    key = given.key or own.key or _text_of(metadata.get("key"))
    condition = given.condition or own.condition or _text_of(metadata.get("condition"))
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
            key=_text_of(key.get("key")), value=_text_of(key.get("value")), timestamp=moment_of(key.get("timestamp"))
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
        content=_text_of(content) if content is not None else _rendered(others),
        id=_text_of(fields.get("id")),
        timestamp=moment_of(fields.get("timestamp")),
        metadata={**others, **metadata},
        key=_text_of(fields.get("key")),
        condition=_text_of(fields.get("condition")),
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
    return ", ".join(f"{name}: {_text_of(value)}" for name, value in fields.items())


def _text_of(value: object) -> str:
    """Text as it is, nothing as the empty text, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode_json(value).decode()


def moment_of(value: object) -> datetime | None:
    """A time as callers give it: a datetime, or milliseconds since 1970. Raises `InvalidMemory`."""
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
        return to_us(moment)
    except ValueError as error:
        raise InvalidMemory("timestamp", moment, str(error)) from None
