"""Bytes of the log: payloads, recorded reductions, hashes. What is written here is never re-encoded.

A reduction is recorded as JSON. A chunk that carries its event's own content, calls or
lines does not repeat them: it names the event's body that it shares.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.errors import EventDecodeError, InvalidEvent, UndeclaredEvent
from memory_engine.events.base import Event, UnknownEvent
from memory_engine.events.registry import EventRegistry
from memory_engine.operations import Operation
from memory_engine.reducing import Reduction

_ENCODER = msgspec.json.Encoder(order="deterministic")
GENESIS = sha256(b"memory_engine log, version 1").digest()
"""The hash that the first event of every log links to."""


class ChunkRecord(Chunk, frozen=True, kw_only=True, omit_defaults=True):
    """A chunk as the log holds it: `shares` names the fields to be taken from `event.bodies()[body]`."""

    body: int = 0
    shares: tuple[str, ...] = ()


class ReductionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reduction as the log holds it."""

    operations: tuple[Operation, ...] = ()
    chunks: tuple[ChunkRecord, ...] = ()


_REDUCTION_DECODER = msgspec.json.Decoder(ReductionRecord)
_SHARED_FIELDS = ("content", "calls", "lines")


def encode_event(event: Event, registry: EventRegistry) -> tuple[bytes, Event]:
    """The payload, and the event as the log will give it back: what reducers see is what replay sees.

    Raises `InvalidEvent` for what JSON or the schema cannot hold (NaN, lone surrogates,
    wrong types, keys that are not strings), `UndeclaredEvent` for an unknown class.
    """
    cls = type(event)
    if cls not in registry:
        if cls.event_type and "event_type" in cls.__dict__:
            registry.register(cls)
        else:
            raise UndeclaredEvent(cls.__qualname__)
    try:
        payload = _ENCODER.encode(event)
        recorded = registry.decode(cls.event_type, cls.event_version, payload)
    except UnicodeEncodeError:
        raise InvalidEvent(cls.event_type, "a text", "a lone surrogate is no character") from None
    except EventDecodeError as error:
        raise InvalidEvent(cls.event_type, *_split_place(error.why)) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidEvent(cls.event_type, "its value", str(error)) from error
    if isinstance(recorded, UnknownEvent):
        raise UndeclaredEvent(cls.__qualname__)
    if recorded != event:
        _explain_difference(event)
    return payload, recorded


def _split_place(why: str) -> tuple[str, str]:
    """msgspec's "Expected `str`, got `int` - at `$.content`" as (place, cause)."""
    cause, _, place = why.partition(" - at ")
    return (place.strip("`") or "$", cause)


def _explain_difference(event: Event) -> None:
    """Raise for a value that changes on its way through JSON; a list where a tuple is due does not."""
    for name in event.__struct_fields__:
        _check_json(event.event_type, f"$.{name}", getattr(event, name))


def _check_json(event_type: str, where: str, value: Any) -> None:
    match value:
        case float() if value != value or value in (float("inf"), float("-inf")):
            raise InvalidEvent(event_type, where, f"{value} is no JSON number")
        case dict():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise InvalidEvent(event_type, where, f"the key {key!r} is no text")
                _check_json(event_type, f"{where}.{key}", inner)
        case list() | tuple():
            for n, inner in enumerate(value):
                _check_json(event_type, f"{where}[{n}]", inner)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                _check_json(event_type, f"{where}.{name}", getattr(value, name))
        case None | str() | int() | float():
            pass
        case _:
            raise InvalidEvent(event_type, where, f"a {type(value).__name__} would come back as another type")


def encode_reduction(reduction: Reduction, event: Event) -> bytes:
    """The record of a reduction; empty for one that does nothing."""
    if not reduction.operations:
        return b""
    bodies = event.bodies() if reduction.chunks else ()
    records = tuple(_to_record(chunk, bodies) for chunk in reduction.chunks)
    return _ENCODER.encode(ReductionRecord(reduction.operations, records))


def decode_reduction(record: bytes) -> ReductionRecord:
    """The operations and chunk records; chunks still lack what they share with their event."""
    return _REDUCTION_DECODER.decode(record) if record else ReductionRecord()


def resolve_chunk(record: ChunkRecord, event: Event | UnknownEvent) -> Chunk:
    """The chunk, with what it shares taken from its event.

    Of an unknown event only the chunk's own fields can be given.
    """
    values = msgspec.structs.asdict(record)
    body, shares = values.pop("body"), values.pop("shares")
    if shares and isinstance(event, Event):
        shared = event.bodies()[body]
        for name in shares:
            values[name] = getattr(shared, name)
    return Chunk(**values)


def _to_record(chunk: Chunk, bodies: Sequence[Any]) -> ChunkRecord:
    values = msgspec.structs.asdict(chunk)
    for n, body in enumerate(bodies):
        shares = tuple(f for f in _SHARED_FIELDS if values[f] and values[f] == getattr(body, f))
        if shares:
            for name in shares:
                del values[name]
            return ChunkRecord(**values, body=n, shares=shares)
    return ChunkRecord(**values)


def commitment(salt: bytes, payload: bytes) -> bytes:
    """What the chain holds of a payload: it verifies the bytes and tells nothing without the salt."""
    return sha256(salt + payload).digest()


def link(previous: bytes, header: Sequence[object], payload_digest: bytes, record_digest: bytes) -> bytes:
    """The hash of an event: over the previous one, the envelope, the payload and the operations."""
    return sha256(previous + payload_digest + record_digest + _ENCODER.encode(header)).digest()


def encode_json(value: object) -> bytes:
    """Deterministic JSON."""
    return _ENCODER.encode(value)
