"""Bytes of the log: payloads, recorded reductions, hashes. Written bytes are never re-encoded.

A reduction is recorded as JSON. A chunk that carries its event's own content, calls or
lines does not repeat them: it names the event's body that it shares.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Never

import msgspec

from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Body, Event, UnknownEvent
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.operations import Operation
from memory_engine.core.reduction import Reduction, RegisteredReducer
from memory_engine.errors import (
    DuplicateRegistration,
    InvalidEvent,
    ReducerError,
    UndeclaredEvent,
    UnknownEventClass,
)

_ENCODER = msgspec.json.Encoder(order="deterministic")
GENESIS = sha256(b"memory_engine log, version 1").digest()
"""The hash that the first event of every log links to."""


LARGE_CHARS = 128 * 1024
"""An event with more characters of text is large: encoding, checking and hashing it takes a millisecond or more."""
_HELD_MAX = 2000
"""Bytes that are hashed without releasing the interpreter. A worker thread that releases it for an instant
every now and then starves the loop: a waiter wakes to find it taken, and waits again for the whole interval."""
_SERIES = (tuple, list)


class Share(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A chunk shares fields with its event's body: the positions of both, and the fields' names with blanks between."""

    chunk: int
    body: int
    fields: str


class ReductionRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reduction as the log holds it, an array. Shared fields are empty in `chunks`."""

    operations: tuple[Operation, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    shares: tuple[Share, ...] = ()


_replaced = msgspec.structs.replace
_REDUCTION_DECODER = msgspec.json.Decoder(ReductionRecord)
_EMPTY: dict[str, object] = {"content": "", "calls": (), "lines": (), "call_id": "", "label": "", "native": ""}
"""The fields that may be shared, and the empty values that replace them in the record."""


def encode_event(event: Event, registry: EventRegistry) -> tuple[bytes, Event]:
    """The payload, and the event as the log will give it back, so that reducers see what replay will see.

    Raises `InvalidEvent` for values that JSON or the schema cannot hold (NaN, lone surrogates,
    wrong types, keys that are not strings) and for what is not an event, `UndeclaredEvent` for a class without
    `@event`, `UnknownEventClass` for one that the registry does not have.
    """
    cls = type(event)
    decoder = registry.decoders.get(cls) or registry.decoder_of(cls)
    if decoder is None:
        _explain_unknown(event, registry)
    try:
        payload = _ENCODER.encode(event)
        recorded = decoder.decode(payload)
    except UnicodeEncodeError:
        raise InvalidEvent(cls.event_type, "a text", "a lone surrogate is not a character") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(cls.event_type, *split_place(str(error))) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidEvent(cls.event_type, "its value", str(error)) from error
    if recorded != event:
        _explain_difference(event)
    return payload, recorded


def _explain_unknown(event: object, registry: EventRegistry) -> Never:
    """Raise for a value that the registry has no class of."""
    if isinstance(event, type):
        raise InvalidEvent(event.__qualname__, "dispatch", "the class is given, and not one event of it")
    if not isinstance(event, Event):
        name = type(event).__qualname__
        raise InvalidEvent(name, "dispatch", f"a {name} is not an event")
    cls = type(event)
    if not cls.event_type or "event_type" not in cls.__dict__:
        raise UndeclaredEvent(cls.__qualname__)
    if registry.has_type(cls.event_type):
        raise DuplicateRegistration("event type", cls.event_type)
    raise UnknownEventClass(cls.event_type, cls.__qualname__)


def split_place(why: str) -> tuple[str, str]:
    """msgspec's "Expected `str`, got `int` - at `$.content`" as (place, cause)."""
    cause, _, place = why.partition(" - at ")
    return (place.strip("`") or "$", cause)


def _explain_difference(event: Event) -> None:
    """Raise for a value that changes on its way through JSON; a list where a tuple is due does not."""
    for name in event.__struct_fields__:
        _check_json(event.event_type, f"$.{name}", getattr(event, name))


def _check_json(event_type: str, where: str, value: Any) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise InvalidEvent(event_type, where, f"{value} is not a JSON number")
        case dict():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise InvalidEvent(event_type, where, f"the key {key!r} is not a text")
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
    if not reduction.chunks:
        return _ENCODER.encode(ReductionRecord(reduction.operations))
    bodies, chunks = event.bodies(), list(reduction.chunks)
    shares: list[Share] = []
    for n, whole in enumerate(chunks):
        share = _shared_fields(
            n, whole, enumerate(bodies[n : n + 1], n) if event.bodies_in_order else enumerate(bodies)
        )
        if share is not None:
            shares.append(share)
            chunks[n] = _replaced(whole, **_blanks(share.fields))
    return _ENCODER.encode((reduction.operations, chunks, shares))


def checked_record(
    reduction: Reduction, event: Event, *, thread_id: str, reducers: Iterable[RegisteredReducer]
) -> bytes:
    """The record of a reduction, after a check that the log can give it back.

    Raises `ReducerError` for chunks that JSON or their own types cannot hold: a reducer's
    mistake must not become a thread that cannot be opened.
    """
    try:
        record = encode_reduction(reduction, event)
        if record:
            _REDUCTION_DECODER.decode(record)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        why = f"what it returned cannot be recorded: {error}"
        names = ", ".join([entry.name for entry in reducers])
        raise ReducerError(thread_id, event.event_type, names, "", why) from error
    return record


def _shared_fields(at: int, chunk: Chunk, bodies: Iterable[tuple[int, Body]]) -> Share | None:
    """The fields that the chunk shares with the first of these bodies that it shares any with."""
    for n, body in bodies:
        fields = ""
        if chunk.content and chunk.content == body.content:
            fields = "content"
        # one by one, and not by their names in `_EMPTY`: every dispatch and every verification comes by
        if chunk.calls and chunk.calls == body.calls:
            fields += " calls"
        if chunk.lines and chunk.lines == body.lines:
            fields += " lines"
        if chunk.call_id and chunk.call_id == body.call_id:
            fields += " call_id"
        if chunk.label and chunk.label == body.label:
            fields += " label"
        if chunk.native and chunk.native == body.native:
            fields += " native"
        if fields:
            return Share(at, n, fields.lstrip())
    return None


@lru_cache(maxsize=64)
def _blanks(fields: str) -> dict[str, object]:
    """The empty values that replace shared fields."""
    return {name: _EMPTY[name] for name in fields.split()}


@lru_cache(maxsize=64)
def _field_names(fields: str) -> tuple[str, ...]:
    return tuple(fields.split())


def decode_reduction(record: bytes) -> ReductionRecord:
    """The operations, and the chunks without the fields that they share with their event."""
    return _REDUCTION_DECODER.decode(record) if record else ReductionRecord()


def resolve_chunks(record: ReductionRecord, event: Event | UnknownEvent) -> tuple[Chunk, ...]:
    """The chunks, their shared fields filled in from their event; for an unknown event, as far as it can be read."""
    if not record.shares:
        return record.chunks
    bodies = event.bodies()
    chunks = list(record.chunks)
    for share in record.shares:
        if share.body >= len(bodies):
            continue  # an unknown event: this process does not have its class
        body = bodies[share.body]
        chunks[share.chunk] = msgspec.structs.replace(
            chunks[share.chunk], **{name: getattr(body, name) for name in _field_names(share.fields)}
        )
    return tuple(chunks)


def commitment(salt: bytes, payload: bytes) -> bytes:
    """The commitment to a payload: it verifies the bytes and reveals nothing without the salt."""
    if len(payload) <= _HELD_MAX or len(payload) > LARGE_CHARS:
        return sha256(salt + payload).digest()
    digest, pieces = sha256(salt), memoryview(payload)
    for start in range(0, len(payload), _HELD_MAX):
        digest.update(pieces[start : start + _HELD_MAX])
    return digest.digest()


def link(previous: bytes, header: Sequence[object], payload_digest: bytes, record_digest: bytes) -> bytes:
    """The hash of an event: over the previous one, the envelope, the payload and the operations."""
    return sha256(previous + payload_digest + record_digest + _ENCODER.encode(header)).digest()


def encode_json(value: object) -> bytes:
    """Deterministic JSON."""
    return _ENCODER.encode(value)


def chars_of(value: object) -> int:
    """The characters of the texts in a struct, those in its tuples and lists of structs among them; else 0."""
    if not isinstance(value, msgspec.Struct):
        return 0
    total = 0
    for item in msgspec.structs.astuple(value):
        if type(item) is str:
            total += len(item)
        elif item and type(item) in _SERIES:
            total += sum(map(chars_of, item))
    return total
