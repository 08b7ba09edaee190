"""Bytes in events: as text, cut into pieces that later events name, and without what was taken out of the log."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec

from memory_engine.core.events.base import TakenOut
from memory_engine.core.events.roles import Id, Seq, SeqBack

Bytes = str
"""Bytes in base64, after a `~` packed by zlib. Redaction takes them out like any text."""


Number = Annotated[int, msgspec.Meta(ge=0)]


class Quote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes with the text of an earlier event in their middle: its `content`, in UTF-8, with this CRC-32."""

    head: Bytes
    back: SeqBack
    check: Number
    tail: Bytes


class PiecePlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The `index`-th piece that the event at `seq` brings; 0: the event that it stands in."""

    seq: Seq
    index: Number


class Packed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value as its serializer gave it: the name of its form, and its bytes, some of them pieces of events.

    Of the form `json` the one part is the text itself.
    """

    form: Id
    parts: tuple[Bytes | PiecePlace, ...] = ()


P = TypeVar("P", bound=str | Quote)
JSON = "json"
"""The form of a text that stands in an event as it is."""
_ZIP_MIN = 48
"""Bytes from which on a piece is packed."""
_WORDS = (
    b"invalid_tool_calls\x90\xaeusage_metadata\xadinput_tokens\xacoutput_tokens\xactotal_tokens\xa9tool_call\xa4args"
    b"\xactool_call_id\xa8artifact\xc0\xa6status\xa7success\xbdlangchain_core.messages.tool\xabToolMessage\xa4tool"
    b"\xbclangchain_core.messages.ai\xa9AIMessage\xa2ai\xb1response_metadata\x80\xaatool_calls\x90\xbemodel_validate_json"
    b"\xbelangchain_core.messages.human\xacHumanMessage\x86\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80"
    b"\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json"
)
"""What messages say again and again, for zlib. Never change it: what was packed could not be read."""
GONE = "[redacted]"
"""Stands where bytes were. No bytes as text begin like it."""
_TELLING = 8
"""Bytes from which on a text is told from the names that serialized objects use."""
_SAID = (b"\xa7content", b"\xa4text")
_ID = b"\xa2id"


class Gap:
    """Finds in an event's bytes what is gone, and puts `GONE` in the place of each piece that holds it; or quotes it.

    A piece holds a text where one of its texts is that text; a short one (such as a word that structures use too)
    only as the content of a message.
    """

    def __init__(self, gone: TakenOut, seq: int) -> None:
        self.found = False
        self._seqs = frozenset(one - seq for one in gone.seqs if one < seq)
        texts = [msgspec.msgpack.encode(text) for text in gone.texts]
        self._marks = [text for text in texts if len(text) > _TELLING]
        self._marks += [key + text for text in texts if len(text) <= _TELLING for key in _SAID]
        self._marks += [_ID + msgspec.msgpack.encode(call_id) for call_id in gone.call_ids]

    def pieces(self, pieces: Iterable[P]) -> tuple[P | str, ...]:
        """Pieces, those without what is gone as they are."""
        return tuple(GONE if self._is_hit(piece) else piece for piece in pieces)

    def packed(self, value: Packed) -> Packed:
        """A value; what stands in it as JSON is no message."""
        if value.form == JSON or not any(self._is_hit(part) for part in value.parts):
            return value
        return Packed(value.form, tuple(GONE if self._is_hit(part) else part for part in value.parts))

    def _is_hit(self, piece: str | Quote | PiecePlace) -> bool:
        match piece:
            case str():
                data = b"" if is_gone(piece) else to_bytes(piece)
                is_hit = any(mark in data for mark in self._marks)
            case Quote(head=head, back=back, tail=tail):
                is_hit = back in self._seqs or self._is_hit(head) or self._is_hit(tail)
            case _:
                is_hit = False
        self.found |= is_hit
        return is_hit


def to_text(data: bytes) -> str:
    """Bytes as text, packed where that is shorter."""
    if len(data) >= _ZIP_MIN:
        zipper = zlib.compressobj(1, zdict=_WORDS)
        packed = zipper.compress(data) + zipper.flush()
        if len(packed) < len(data):
            return "~" + b64encode(packed).decode()
    return b64encode(data).decode()


def is_gone(text: str) -> bool:
    """Whether bytes were taken out of an event: erased, or redacted."""
    return text.startswith("[")


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given."""
    if not text.startswith("~"):
        return b64decode(text)
    return zlib.decompressobj(zdict=_WORDS).decompress(b64decode(text[1:]))
