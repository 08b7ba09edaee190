"""The purposes of events' fields, declared with each field.

A plain `str` is text that a person or a program wrote: redaction removes it. Declare every other field with an alias
below, which change neither how a field is encoded nor which values it may hold. Redaction, reruns and explanations
loop over the roles that they find, so that they treat your events as they treat the built-in ones.
"""

from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec


class FieldKind(Enum):
    """The purpose of a text in an event.

    `TEXT` is read, `JSON` is read by programs. `NAME` names something, in words or by a digest of words: it gets
    another name where its event is hidden. `ID` binds events together and reveals nothing: it stays. `CHUNK` is a
    chunk's id. `STATUS` is a word of a few, or anything.
    """

    TEXT = 1
    JSON = 2
    NAME = 3
    ID = 4
    CHUNK = 5
    STATUS = 6


class Reference(Enum):
    """How a field names another event of the same log, or something that came of it.

    `CHUNK` is a chunk's id, `FACT` that of a fact in an outbox. `SEQ` is a seq, `WRITTEN` a seq as text, `BACK` a seq
    or (negative) how many events before its own. `BOUND` is a seq up to which something was read: any event may have
    it. `SEEN` is the seq of the state that the event was made from, which a rerun does not check.
    """

    NONE = 0
    CHUNK = 1
    FACT = 2
    SEQ = 3
    WRITTEN = 4
    BACK = 5
    BOUND = 6
    SEEN = 7


class Source(Enum):
    """How a field names the source of its event. Taking the source out of a log takes the event out too.

    `WORDS` is a seq, like `SEQ`, of an event whose very words are repeated: an explanation need not name it.
    """

    NONE = 0
    EVENT = 1
    CALL = 2
    CHUNK = 3
    SEQ = 4
    WORDS = 5


class Role(msgspec.Struct, frozen=True):
    """The purpose of a field. `digest`: the prefix of a name that is made of the event's texts; `None`: it is not."""

    kind: FieldKind = FieldKind.TEXT
    reference: Reference = Reference.NONE
    source: Source = Source.NONE
    digest: str | None = None


JsonText = Annotated[str, Role(FieldKind.JSON)]
"""JSON that programs read."""
Name = Annotated[str, Role(FieldKind.NAME)]
"""A name of something, in words or made of words."""
Digest = Annotated[str, Role(FieldKind.NAME, digest="")]
"""A name that is made of the event's texts."""
Id = Annotated[str, Role(FieldKind.ID)]
"""An id or a code word: it reveals nothing, and may contain no redacted text."""
StatusWord = Annotated[str, Role(FieldKind.STATUS)]
"""The status of a chunk."""
ChunkId = Annotated[str, Role(FieldKind.CHUNK, Reference.CHUNK)]
"""The id of a chunk of the same log."""
FactId = Annotated[str, Role(FieldKind.ID, Reference.FACT)]
"""The id of a fact in the outbox of the same thread."""
Seq = Annotated[int, Role(reference=Reference.SEQ)]
"""The seq of an earlier event of the same log; 0: of none."""
SeqText = Annotated[str, Role(FieldKind.ID, Reference.WRITTEN)]
"""The same, as text."""
SeqBack = Annotated[int, Role(reference=Reference.BACK)]
"""The same, or (negative) how many events before its own."""
SeqBound = Annotated[int, Role(reference=Reference.BOUND)]
"""A seq up to which something was read."""
SeenSeq = Annotated[int, Role(reference=Reference.SEEN)]
"""The seq of the state that the event was made from; 0: nothing is checked."""
SourceEventId = Annotated[str, Role(FieldKind.ID, source=Source.EVENT)]
"""The id of an event, of whichever thread, that this one was drawn from."""
SourceCallId = Annotated[str, Role(FieldKind.ID, source=Source.CALL)]
"""The id of the call that this event was drawn from."""
SourceChunkId = Annotated[str, Role(FieldKind.CHUNK, Reference.CHUNK, Source.CHUNK)]
"""The id of a chunk that this event was drawn from."""
SourceSeq = Annotated[int, Role(reference=Reference.SEQ, source=Source.SEQ)]
"""The seq of an event of the same log that this one was drawn from."""
SourceSeqBack = Annotated[int, Role(reference=Reference.BACK, source=Source.SEQ)]
"""The same, or (negative) how many events before its own."""
Moment = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)]
"""Microseconds since 1970, of the years 1 to 9999."""
_PLACE = msgspec.Meta(ge=0, le=9_999_999_999)
Place = Annotated[Seq, _PLACE]
"""A seq of the thread, or 0."""
PlaceBound = Annotated[SeqBound, _PLACE]
"""The same, up to which something was read."""


@cache
def roles_of(cls: type) -> MappingProxyType[str, Role]:
    """The roles that the fields of a class declare, by name: the fields of an event, or of a struct inside events.

    That of a list is the role of its items.
    """
    hints = get_type_hints(get_origin(cls) or cls, include_extras=True)  # of a generic struct, the struct
    found = {name: _role_in(hint) for name, hint in hints.items()}
    return MappingProxyType({name: role for name, role in found.items() if role is not None})


def _role_in(hint: object) -> Role | None:
    if get_origin(hint) is Annotated:
        own = next((one for one in get_args(hint)[1:] if isinstance(one, Role)), None)
        return own if own is not None else _role_in(get_args(hint)[0])
    if get_origin(hint) in (dict, type):
        return None
    return next((role for inner in get_args(hint) if (role := _role_in(inner)) is not None), None)


def sources_in(event: msgspec.Struct) -> Iterator[tuple[Source, object]]:
    """The sources that an event declares, in the order of its fields, including the fields of structs in it.

    A place that is counted back from the event's own does not change.
    """
    roles = roles_of(type(event))
    for name in event.__struct_fields__:
        value = getattr(event, name)
        values = value if isinstance(value, tuple | list) else (value,)
        role = roles.get(name)
        if role is not None and role.source is not Source.NONE:
            for one in values:
                yield role.source, one
        else:
            for one in values:
                if isinstance(one, msgspec.Struct):
                    yield from sources_in(one)
