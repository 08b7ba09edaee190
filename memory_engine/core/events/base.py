"""What every event is made of: the base struct, content parts and the `event` decorator."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, TypeVar, dataclass_transform

import msgspec
from msgspec import Meta


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text", gc=False):
    """A piece of text inside mixed content."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image", omit_defaults=True, gc=False):
    """An image inside mixed content, by address or as a `data:` URL."""

    url: str
    media_type: str = ""
    alt: str = ""


Content = str | tuple[TextPart | ImagePart, ...]
"""Text, or text and images in order."""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call of a response. `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"
    long_running: bool = False

    @classmethod
    def create(cls, id: str, name: str, arguments: Mapping[str, object]) -> "ToolCall":
        """A call from a mapping of arguments, encoded as compact JSON in the mapping's order.

        Raises `ValueError` for NaN and infinities, `TypeError` for what JSON cannot hold.
        """
        text = json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return cls(id=id, name=name, arguments=text)


class SummaryLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a summary, and the ids of the chunks that it was drawn from. An array on the wire: they are many."""

    section: str
    text: str
    sources: tuple[str, ...] = ()


class Body(msgspec.Struct, frozen=True, gc=False):
    """The bulky part of an event that a chunk may share with it instead of repeating it."""

    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    lines: tuple[SummaryLine, ...] = ()
    call_id: str = ""
    label: str = ""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta):
    """Tells type checkers what `Event` passes on to its subclasses: frozen, keyword-only."""


class Event(msgspec.Struct, metaclass=EventMeta, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every event: an immutable fact. Subclasses are declared with `@event(name)`."""

    event_type: ClassVar[str] = ""
    event_version: ClassVar[int] = 0
    event_tracked: ClassVar[bool] = False
    bodies_in_order: ClassVar[bool] = False
    """Whether the n-th chunk shares with the n-th body only, and not with the first that fits."""

    def bodies(self) -> tuple[Body, ...]:
        """The bodies that chunks of this event may share; the log then stores them once."""
        content: Content = getattr(self, "content", "")
        calls: tuple[ToolCall, ...] = getattr(self, "calls", ())
        return (
            Body(content=content, calls=calls, call_id=getattr(self, "call_id", ""), label=getattr(self, "name", "")),
        )


class _Unknown(msgspec.Struct, frozen=True, gc=False):
    """What can be read of an event whose class is not here."""

    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event whose (type, version) this process does not know; its bytes are kept as they are."""

    type: str
    version: int
    raw: bytes

    def bodies(self) -> tuple[Body, ...]:
        """Content, calls and the like where its payload has them under the names most events use; else nothing."""
        try:
            read = msgspec.json.decode(self.raw, type=_Unknown)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()
        return (Body(content=read.content, calls=read.calls, call_id=read.call_id, label=read.name),)


E = TypeVar("E", bound=Event)


def event(name: str, *, version: int = 1, tracked: bool = False) -> Callable[[type[E]], type[E]]:
    """Declare an event class's wire name and schema version.

    The name and the version, never the Python path, are what the log holds: a class
    may move or be renamed without touching a stored byte. `tracked`: the thread's head
    remembers the seq of the latest event of the type, so that a view which reads only
    such types is opened without reading the log.
    Raises `ValueError` for an empty name or a version below 1.
    """
    if not name or version < 1:
        raise ValueError(f"an event needs a name and a version of at least 1, got {name!r}, {version}")

    def declare(cls: type[E]) -> type[E]:
        cls.event_type = name
        cls.event_version = version
        cls.event_tracked = tracked
        return cls

    return declare


Moment = Annotated[int, Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)]
"""Microseconds since 1970, of the years 1 to 9999."""


Place = Annotated[int, Meta(ge=0, le=9_999_999_999)]
"""A seq of the thread, or 0."""
