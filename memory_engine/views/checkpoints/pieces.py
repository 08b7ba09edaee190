"""Bytes in events: as text, cut into pieces that later events name, and without what was taken out of the log."""

import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Annotated, TypeVar

import msgspec

from memory_engine.core.bounded import UNPACKED_ALL_MAX, UNPACKED_RATIO, of_base64, unpacked, unpacked_max
from memory_engine.core.events.base import PackedText, TakenOut
from memory_engine.core.events.roles import Id, Seq, SeqBack
from memory_engine.core.spelling import Sought, found_in
from memory_engine.errors import UnreadableContent

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
    """The `index`-th piece of the event at `seq`; 0: the event that contains it."""

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
"""The form of a text that is in an event unpacked."""
FORMS = frozenset({JSON, "msgpack", "bytes", "bytearray", "null", "pickle", "empty"})
"""The forms whose bytes hold texts as UTF-8. They are searched as bytes; nothing is ever unpickled here."""
_ZIP_MIN = 48
"""Bytes from which on a piece is packed."""
_WORDS = (
    b"invalid_tool_calls\x90\xaeusage_metadata\xadinput_tokens\xacoutput_tokens\xactotal_tokens\xa9tool_call\xa4args"
    b"\xactool_call_id\xa8artifact\xc0\xa6status\xa7success\xbdlangchain_core.messages.tool\xabToolMessage\xa4tool"
    b"\xbclangchain_core.messages.ai\xa9AIMessage\xa2ai\xb1response_metadata\x80\xaatool_calls\x90\xbemodel_validate_json"
    b"\xbelangchain_core.messages.human\xacHumanMessage\x86\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80"
    b"\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json"
)
"""Common parts of messages, for zlib. Never change it: packed pieces could not be read."""
GONE = "[redacted]"
"""Stands where bytes were. No bytes as text begin like it."""
_TELLING = 8
"""A text of at least this number of bytes cannot be a name that serialized objects use."""
_QUOTED = 24
"""Bytes from which on a text is taken out of the values that quote it too, and not only of those that are it."""
_SAID = (b"content", b"text")
_ID = b"\xa2id"


class Gap:
    """Finds in an event's bytes what is gone, and puts `GONE` in the place of each piece that holds it; or quotes it.

    A piece holds a text where one of its texts is that text; a short one (such as a word that structures use too)
    only as the content of a message. A long text is also held by a value that quotes it, in any spelling: a graph's
    steps write down what people said. A message that quotes another one is a message of its own, and stays.
    """

    def __init__(self, gone: TakenOut, seq: int) -> None:
        self.found = False
        self._budget = UNPACKED_ALL_MAX
        self._gone = gone
        self._seq = seq
        self._seqs = frozenset(one - seq for one in gone.seqs if one < seq)
        texts = [msgspec.msgpack.encode(text) for text in gone.texts]
        self._marks = [text for text in texts if len(text) > _TELLING]
        self._marks += [
            msgspec.msgpack.encode(key.decode()) + text for text in texts if len(text) <= _TELLING for key in _SAID
        ]
        self._marks += [_ID + msgspec.msgpack.encode(call_id) for call_id in gone.call_ids]
        self._quoted = _quotable(gone.texts)

    def pieces(self, pieces: Iterable[P]) -> tuple[P | str, ...]:
        """Pieces; those without forgotten parts are unchanged."""
        return tuple(GONE if self._is_hit(piece) else piece for piece in pieces)

    def packed(self, value: Packed) -> Packed:
        """A value; JSON inside it is no message."""
        if value.form == JSON or not any(self._is_hit(part) for part in value.parts):
            return value
        return Packed(value.form, tuple(GONE if self._is_hit(part) else part for part in value.parts))

    def _is_hit(self, piece: str | Quote | PiecePlace) -> bool:
        match piece:
            case str():
                is_hit = not is_gone(piece) and self._holds(piece)
            case Quote(head=head, back=back, tail=tail):
                is_hit = back in self._seqs or self._holds(head) or self._holds(tail) or self._quotes(piece)
            case _:
                is_hit = False
        self.found |= is_hit
        return is_hit

    def _holds(self, piece: str) -> bool:
        if self._budget < 0:
            return self._gone.is_unread_gone
        try:
            data = to_bytes(piece)
        except UnreadableContent:
            return self._gone.is_unread_gone
        self._budget -= max(0, len(data) - UNPACKED_RATIO * len(piece))
        if any(mark in data for mark in self._marks) or self._matches(data):
            return True
        return any(_quotes(data, self._quoted[n]) for n in found_in(data, self._quoted))

    def _quotes(self, quote: Quote) -> bool:
        """Whether a pattern matches in a quote: its ends may go on in the text between them."""
        if self._gone.matches is None:
            return False
        content = self._gone.content(quote.back if quote.back >= 0 else self._seq + quote.back)
        whole = None if content is None else unquoted(quote, content)
        return whole is None or self._matches(whole)

    def _matches(self, data: bytes) -> bool:
        matches = self._gone.matches
        return matches is not None and any(map(matches, texts_in_bytes(data)))


@lru_cache(maxsize=4)
def _quotable(texts: tuple[str, ...]) -> list[Sought]:
    """The texts that are long enough to be quoted: they are the same for all events of a log."""
    return [Sought(text) for text in texts if len(text.encode("utf-8", "surrogatepass")) >= _QUOTED]


def _quotes(data: bytes, text: Sought) -> bool:
    """Whether a value quotes a text, rather than a message in it."""
    messages = {string for key, string in strings(data) if key in _SAID and text.is_in(string)}
    for message in messages:
        data = data.replace(message, b"")
    return text.is_in(data)


def texts_in_bytes(data: bytes) -> Iterator[str]:
    """The texts in serialized bytes, and all of them as one text: they may be of another form than MessagePack."""
    for _, string in strings(data):
        yield string.decode("utf-8", "replace")
    yield data.decode("utf-8", "replace")


def strings(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each string in MessagePack, objects of classes included, after the string before it: its key, in an object.

    `data` may begin and end between any two elements. Ends at the first byte that is not MessagePack.
    """
    waiting = [(0, len(data))]
    key = b""
    while waiting:
        at, end = waiting.pop()
        while at < end:
            kind, size, at = _element(data, at)
            if kind < 0 or at + size > end:
                break
            if kind == _STRING:
                string = data[at : at + size]
                yield key, string
                key = string
            elif kind == _OBJECT:
                waiting.append((at + size, end))
                end = at + size
                continue
            else:
                key = b""
            at += size


_OTHER, _STRING, _OBJECT = 0, 1, 2
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_FIXED |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_SIZED = {0xC4: (1, _STRING), 0xC5: (2, _STRING), 0xC6: (4, _STRING), 0xD9: (1, _STRING), 0xDA: (2, _STRING)}
_SIZED |= {0xDB: (4, _STRING), 0xC7: (1, _OBJECT), 0xC8: (2, _OBJECT), 0xC9: (4, _OBJECT)}


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """The kind of an element of MessagePack, how long its bytes are and where they begin; -1 for none."""
    first = data[at]
    at += 1
    if first < 0xA0 or first >= 0xE0:
        return _OTHER, 0, at  # a small number, or the head of a short list or object
    if first < 0xC0:
        return _STRING, first & 0x1F, at
    if first in _FIXED:
        return _OTHER, _FIXED[first], at
    if first in _SIZED:
        width, kind = _SIZED[first]
        size = int.from_bytes(data[at : at + width], "big")
        return kind, size, at + width + (kind == _OBJECT)
    if 0xD4 <= first <= 0xD8:
        return _OBJECT, 1 << (first - 0xD4), at + 1
    return -1, 0, at


def unquoted(quote: Quote, content: object) -> bytes | None:
    """The bytes of a quote of an event of this content; `None` where that was erased."""
    text = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else b""
    return to_bytes(quote.head) + text + to_bytes(quote.tail) if zlib.crc32(text) == quote.check else None


def readings(pieces: Iterable[str | Quote], values: Iterable[Packed], seq: int) -> Iterator[PackedText]:
    """How to read pieces and values of an event, which is at a seq."""
    for n, piece in enumerate(pieces):
        if isinstance(piece, Quote):
            quoted = piece.back if piece.back >= 0 else seq + piece.back
            yield PackedText(f"piece {n}", partial(_unquoted_bytes, piece), texts_in_bytes, quoted)
        elif not is_gone(piece):
            yield PackedText(f"piece {n}", partial(_piece_bytes, piece), texts_in_bytes)
    for n, value in enumerate(values):
        if value.form not in FORMS:
            yield PackedText(f"value {n}", partial(_unknown, value.form), texts_in_bytes)
        elif value.form != JSON:
            for part in value.parts:
                if isinstance(part, str) and not is_gone(part):
                    yield PackedText(f"value {n}", partial(_piece_bytes, part), texts_in_bytes)


def _piece_bytes(piece: str, _content: str | None) -> bytes:
    return to_bytes(piece)


def _unquoted_bytes(quote: Quote, content: str | None) -> bytes:
    found = unquoted(quote, content)
    return to_bytes(quote.head) + to_bytes(quote.tail) if found is None else found


def _unknown(form: str, _content: str | None) -> bytes:
    raise UnreadableContent("a value", f"its form, {form!r}, is not known here")


def to_text(data: bytes) -> str:
    """Bytes as text, packed where that is shorter and `to_bytes` takes it."""
    if len(data) >= _ZIP_MIN:
        zipper = zlib.compressobj(1, zdict=_WORDS)
        packed = zipper.compress(data) + zipper.flush()
        if len(packed) < len(data) <= unpacked_max(len(packed)):
            return "~" + b64encode(packed).decode()
    return b64encode(data).decode()


def is_gone(text: str) -> bool:
    """Whether bytes were taken out of an event: erased, or redacted."""
    return text.startswith("[")


def to_bytes(text: str) -> bytes:
    """The bytes that `to_text` was given. Raises `UnreadableContent`."""
    what = "packed content"
    if not text.startswith("~"):
        return of_base64(text, what=what)
    return unpacked(of_base64(text[1:], what=what), what=what, zdict=_WORDS)
