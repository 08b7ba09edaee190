"""Events with megabytes of text: encoded and hashed in a worker thread, in pieces.

A call of a C function keeps the interpreter's lock to its end, on whatever thread: encoding 15 MB at once takes 20 ms,
and decoding them to see that they come back as much again. Here only what is around the long texts is decoded: a text
is taken from the bytes.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from io import BytesIO

import msgspec

from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.tokens import recorded_tokens, tokens_of_bytes
from memory_engine.errors import InvalidEvent, MemoryEngineError

LONG_CHARS = 16 * 1024
"""Longer texts of a large event are encoded apart from it."""
PIECE_CHARS = 64 * 1024
"""Characters that one call encodes."""
_PLACE = b"\0"
"""Stands for a text in a payload: JSON itself holds no such byte."""
_RAW = msgspec.Raw(_PLACE)


class SplitEvent(msgspec.Struct, frozen=True):
    """A large event: as the log will give it back, its payload without the long texts, and these in their order."""

    recorded: Event
    around: Sequence[bytes]
    texts: Sequence[str]

    def encoded(self, salt: bytes) -> "EncodedEvent":
        """Its bytes: work for another thread. Raises `InvalidEvent` for lone surrogates."""
        written = BytesIO()  # grows in place, and gives its bytes without a copy
        sizes: list[int] = []
        written.write(self.around[0])
        try:
            for text, following in zip(self.texts, self.around[1:], strict=True):
                sizes.append(_write_json_text(text, written))
                written.write(following)
        except UnicodeEncodeError:
            why = "a lone surrogate is not a character"
            raise InvalidEvent(self.recorded.event_type, "a text", why) from None
        payload = written.getvalue()
        committed = sha256(salt)
        committed.update(payload)
        return EncodedEvent(payload, committed.digest(), MeasuredTexts(self.texts, sizes))


class MeasuredTexts(msgspec.Struct, frozen=True):
    """Long texts with their sizes in bytes of UTF-8."""

    texts: Sequence[str] = ()
    sizes: Sequence[int] = ()

    def tokens(self, text: str) -> int:
        """The estimate for a text: of these ones without looking at it."""
        for known, size in zip(self.texts, self.sizes, strict=True):
            if known is text:
                return tokens_of_bytes(size)
        return recorded_tokens(text)


class EncodedEvent(msgspec.Struct, frozen=True):
    """The payload of a large event, the commitment to it, and the sizes of its long texts."""

    payload: bytes
    commitment: bytes
    measured: MeasuredTexts


def _write_json_text(text: str, written: BytesIO) -> int:
    """Write a text as JSON, piece by piece, without escapes where none is needed. Returns its bytes of UTF-8."""
    size = 0
    written.write(b'"')
    for at in range(0, len(text), PIECE_CHARS):
        piece = text[at : at + PIECE_CHARS]
        written.write(encode_json(piece)[1:-1])
        size += len(piece.encode())
    written.write(b'"')
    return size


def split_event(event: Event, registry: EventRegistry) -> SplitEvent | None:
    """A large event in its parts; `None` where it must be encoded whole, also to say what is wrong with it."""
    cls = type(event)
    if cls not in registry or not _has_long_text(event) or not _takes_any_text(cls):
        return None
    texts: list[str] = []
    light = _without_texts(event, texts)
    try:
        around = encode_json(light).split(_PLACE)
        seen = registry.decode(cls.event_type, cls.event_version, b'""'.join(around))
        recorded = _with_texts(seen, light, iter(texts))
    except (MemoryEngineError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    if not isinstance(recorded, Event) or recorded != event or len(around) != len(texts) + 1:
        return None
    return SplitEvent(recorded, around, texts)


def _has_long_text(value: object) -> bool:
    """Whether there is any text to encode apart: many short ones are encoded at once in a tenth of the time."""
    if type(value) is str:
        return len(value) > LONG_CHARS
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    return isinstance(value, list | tuple) and any(map(_has_long_text, value))


@lru_cache(maxsize=256)
def _takes_any_text(cls: type[Event]) -> bool:
    """Whether the schema treats all texts alike: no field limits them, and no code of a class looks at them."""
    seen: set[type] = set()
    waiting: list[object] = [msgspec.inspect.type_info(cls)]
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if hasattr(info.cls, "__post_init__"):
                return False
            if info.cls in seen:
                continue
            seen.add(info.cls)
        if isinstance(info, msgspec.inspect.CustomType) or (
            isinstance(info, msgspec.inspect.StrType) and info != msgspec.inspect.StrType()
        ):
            return False
        if isinstance(info, msgspec.Struct):
            waiting += msgspec.structs.astuple(info)
        elif isinstance(info, tuple):
            waiting += info
    return True


def _without_texts(value: object, texts: list[str]) -> object:
    """The value with a mark in the place of each long text, which is added to `texts`."""
    if type(value) is str and len(value) > LONG_CHARS:
        texts.append(value)
        return _RAW
    if isinstance(value, msgspec.Struct):
        found = {name: _without_texts(getattr(value, name), texts) for name in value.__struct_fields__}
        changed = {name: new for name, new in found.items() if new is not getattr(value, name)}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, list | tuple):
        items = [_without_texts(item, texts) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _with_texts(seen: object, light: object, texts: Iterator[str]) -> object:
    """The decoded value, with the texts in the places that `light` marks. Raises `ValueError` if it has others."""
    if light is _RAW:
        if seen != "":
            raise ValueError("it came back as something else")
        return next(texts)
    if isinstance(light, msgspec.Struct) and isinstance(seen, msgspec.Struct):
        found = {
            name: _with_texts(getattr(seen, name), getattr(light, name), texts) for name in light.__struct_fields__
        }
        changed = {name: new for name, new in found.items() if new is not getattr(seen, name)}
        return msgspec.structs.replace(seen, **changed) if changed else seen
    if isinstance(light, list | tuple) and isinstance(seen, list | tuple):
        items = [_with_texts(one, other, texts) for one, other in zip(seen, light, strict=True)]
        return type(seen)(items)
    return seen
