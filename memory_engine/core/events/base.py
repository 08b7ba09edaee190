"""The parts of every event: the base struct, content parts and the `event` decorator."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeVar, dataclass_transform, get_args

import msgspec

from memory_engine.core.bounded import is_data_url, of_data_url
from memory_engine.core.events.roles import ChunkId, Id, JsonText
from memory_engine.errors import InvalidArgument


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text", gc=False):
    """A piece of text inside mixed content."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image", omit_defaults=True, gc=False):
    """An image inside mixed content: by address, as a `data:` URL, or (`file_id`) by its id at the provider.

    `detail` is how closely the model should look, in the provider's term.
    """

    url: str
    media_type: Id = ""
    alt: str = ""
    file_id: Id = ""
    detail: Id = ""


class FilePart(msgspec.Struct, frozen=True, tag_field="type", tag="file", omit_defaults=True, gc=False):
    """A PDF or another file inside mixed content: by address, as a `data:` URL, or by its id at the provider.

    A plain text file is given as `text` instead, where search finds it.
    """

    url: str = ""
    media_type: Id = ""
    name: str = ""
    file_id: Id = ""
    text: str = ""


Part = TextPart | ImagePart | FilePart
Content = str | tuple[Part, ...]
"""Text, or text, images and files in order."""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call of a response. `arguments` is the JSON text as the model wrote it."""

    id: Id
    name: Id
    arguments: JsonText = "{}"
    long_running: bool = False

    @classmethod
    def create(cls, id: str, name: str, arguments: Mapping[str, object]) -> "ToolCall":
        """A call from a mapping of arguments, encoded as compact JSON in the mapping's order.

        Raises `ValueError` for NaN and infinities, `TypeError` for a value that JSON cannot hold.
        """
        import json  # most programs take their calls from a model, as text

        text = json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return cls(id=id, name=name, arguments=text)


class TextSpan(msgspec.Struct, frozen=True, gc=False):
    """The characters `start` to `end` of a text, and what they are."""

    kind: Id
    start: int
    end: int


class SummaryLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a summary, and the ids of the chunks that it was drawn from. An array on the wire: they are many."""

    section: Id
    text: str
    sources: tuple[ChunkId, ...] = ()


EventRole = Literal["user", "assistant", "tool", "system", "compaction", "memory", "other"]
"""The speaker of an event, or its purpose: `assistant` is a part of a model's response."""
ChunkOrigin = Literal["any", "none", "own", "recalled", "versions", "copies", "summaries"]
"""The origin of the chunks that an event brings.

`none`: it brings none, and changes none. `own`: from no others. `recalled`: from no others, and they show the words of
the events that it was drawn from. `versions` hold the words of the chunks whose places they take, and `copies` hold
nothing else; `summaries` summarise several. `any`: it may be any of these.
"""
Delivers = Literal["", "tenant", "industry", "ending"]
"""Whether an event has `deliveries()`: facts for threads of its own tenant, or for an industry. `ending`: it has none,
and ends what such facts rested on."""
_ROLES, _ORIGINS, _DELIVERS = get_args(EventRole), get_args(ChunkOrigin), get_args(Delivers)


class Body(msgspec.Struct, frozen=True, gc=False):
    """The bulky part of an event that a chunk may share with it instead of repeating it."""

    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    lines: tuple[SummaryLine, ...] = ()
    call_id: str = ""
    label: str = ""
    native: str = ""


class TakenOut(msgspec.Struct, frozen=True):
    """Events that are taken out of a log, by their seqs; to know copies by, their texts and the ids of their calls.

    `matches` says of any text whether a pattern takes it out. `content` gives what an event before this one says, by
    its seq. `is_unread_gone`: what cannot be read is taken out too.
    """

    seqs: Set[int] = frozenset()
    texts: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    matches: Callable[[str], bool] | None = None
    content: Callable[[int], str | None] = lambda _seq: None
    is_unread_gone: bool = False


class PackedText(msgspec.Struct, frozen=True):
    """A part of an event that its payload holds packed, in base64 or the like, and how to read it.

    `place` names it. `unpack` takes the content of the event at `quotes`, if that is a seq, and gives the bytes, or
    raises `UnreadableContent`; `texts` finds the texts in these.
    """

    place: str
    unpack: Callable[[str | None], bytes]
    texts: Callable[[bytes], Iterable[str]]
    quotes: int = 0


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta):
    """Tells type checkers that subclasses of `Event` are frozen and keyword-only."""


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class ExplainingMeta(EventMeta):
    """Says which field was meant, where an event is made with one that it does not have.

    It costs two microseconds an event: for events that are rare, and whose fields are easily called something else.
    """

    if not TYPE_CHECKING:  # which see the fields of each class

        def __call__(self, *values: object, **fields: object) -> object:
            """Make an event. Raises `TypeError`, which names the fields."""
            try:
                return super().__call__(*values, **fields)
            except TypeError as error:
                known: tuple[str, ...] = self.__struct_fields__
                unknown = [name for name in fields if name not in known]
                if not unknown:
                    raise
                raise TypeError(f"{self.__name__} has no field {unknown[0]!r}; {meant(unknown[0], known)}") from error


_MEANT = {
    "content": ("text", "message", "body", "error", "result", "output"),
    "call_id": ("tool_call_id", "tool_use_id", "id"),
    "name": ("tool", "tool_name"),
}
"""Names of these fields in other libraries."""


def meant(name: str, fields: Sequence[str]) -> str:
    """The field that somebody means who writes this name, or all that there are, as the end of a sentence."""
    from difflib import get_close_matches  # for one that is mistaken

    known = (field for field in fields if name in _MEANT.get(field, ()))
    near = next(known, None) or next(iter(get_close_matches(name, fields, n=1)), None)
    return f"did you mean {near!r}?" if near else f"its fields are {', '.join(fields)}"


class Event(msgspec.Struct, metaclass=EventMeta, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every event: an immutable fact. Subclasses are declared with `@event(name)`."""

    event_type: ClassVar[str] = ""
    event_version: ClassVar[int] = 0
    event_tracked: ClassVar[bool] = False
    event_role: ClassVar[EventRole] = "other"
    event_chunks: ClassVar[ChunkOrigin] = "any"
    event_delivers: ClassVar[Delivers] = ""
    event_upkeep: ClassVar[bool] = False
    bodies_in_order: ClassVar[bool] = False
    """Whether the n-th chunk shares with the n-th body only, and not with the first that fits."""

    def bodies(self) -> tuple[Body, ...]:
        """The bodies that chunks of this event may share; the log then stores them once."""
        content: Content = getattr(self, "content", "")
        calls: tuple[ToolCall, ...] = getattr(self, "calls", ())
        body = Body(
            content=content,
            calls=calls,
            call_id=getattr(self, "call_id", ""),
            label=getattr(self, "name", ""),
            native=getattr(self, "native", ""),
        )
        return (body,)

    def in_few_words(self) -> str:
        """The event for a line of a list, if its text and its fields would not describe it; else empty."""
        return ""

    def without(self, gone: TakenOut, seq: int) -> Self:
        """The event at a seq, less the copies of forgotten content; itself if it holds none.

        For one that holds more than such copies. Any other declares its sources, and goes whole with one of them.
        """
        return self

    def packed_texts(self, seq: int) -> Iterator[PackedText]:
        """The parts of the event, which is at a seq, that its payload holds packed; of content, files in base64.

        Proofs of erasing, erasing and redaction read these: declare here what a search of the payload would miss. JSON
        inside a text needs no declaration.
        """
        content: object = getattr(self, "content", ())
        for n, part in enumerate(content if isinstance(content, tuple) else ()):
            if isinstance(part, ImagePart | FilePart) and is_data_url(part.url):
                yield PackedText(f"content part {n}", partial(_of_data_url, part.url), _text_of_file)

    def digests(self) -> tuple[str, ...]:
        """The names, made of its texts, under which later events and rows refer to it."""
        return ()


def _of_data_url(url: str, _content: str | None) -> bytes:
    return of_data_url(url)


def _text_of_file(data: bytes) -> Iterator[str]:
    with suppress(UnicodeDecodeError):
        yield data.decode()


class _Unknown(msgspec.Struct, frozen=True, gc=False):
    """The fields that can be read of an event whose class this process does not have."""

    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    native: str = ""


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event whose (type, version) this process does not know; its bytes are kept."""

    type: str
    version: int
    raw: bytes

    def bodies(self) -> tuple[Body, ...]:
        """Content, calls and the like where its payload has them under the names most events use; else nothing."""
        try:
            read = msgspec.json.decode(self.raw, type=_Unknown)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()
        body = Body(content=read.content, calls=read.calls, call_id=read.call_id, label=read.name, native=read.native)
        return (body,)


E = TypeVar("E", bound=Event)


def event(  # noqa: PLR0913 - all that is to be said of an event, by keyword
    name: str,
    *,
    version: int = 1,
    tracked: bool = False,
    role: EventRole = "other",
    chunks: ChunkOrigin = "any",
    delivers: Delivers = "",
    upkeep: bool = False,
) -> Callable[[type[E]], type[E]]:
    """Declare an event class's wire name, its schema version, and the facts that other parts need.

    The log holds the name and the version, never the Python path: you may move or rename a class without touching a
    stored byte. `tracked`: the thread's head remembers the seq of the latest event of the type, so that a view which
    reads only such types opens without reading the log; an event that `delivers` is tracked. `role` groups the event in
    lists, `chunks` says where its chunks come from: leave it out if unsure. `upkeep`: it changes nothing that a thread
    holds, only how the engine keeps it, so that a dispatch with an `expected_seq` before it still fits. Raises
    `ValueError` for an empty name or a version below 1, `InvalidArgument` for any other value that is not as declared.
    """
    if not name or version < 1:
        raise ValueError(f"an event needs a name and a version of at least 1, got {name!r}, {version}")
    if not isinstance(name, str):
        raise InvalidArgument("the name of an event", name, 'write @event("name") above the class')
    for what, given, known in (("role", role, _ROLES), ("chunks", chunks, _ORIGINS), ("delivers", delivers, _DELIVERS)):
        if given not in known:
            raise InvalidArgument(f"{what} of event {name!r}", given, f"give one of {', '.join(map(repr, known))}")

    def declare(cls: type[E]) -> type[E]:
        if not issubclass(cls, Event):
            raise InvalidArgument(f"the class of event {name!r}", cls, "derive it from memory_engine.Event")
        cls.event_type = name
        cls.event_version = version
        cls.event_tracked = tracked or bool(delivers)
        cls.event_role = role
        cls.event_chunks = chunks
        cls.event_delivers = delivers
        cls.event_upkeep = upkeep
        return cls

    return declare
