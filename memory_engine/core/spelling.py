"""The spellings of a text: one text can be stored as different bytes, which a search for it must all find.

A text inside JSON has escapes, JSON inside JSON has escaped escapes, and an accented letter is one character or two
(Unicode's NFC and NFD). A search for one of these spellings misses the others.
"""

import json
import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple
from unicodedata import combining, normalize

from memory_engine.core.lazy import regex

SPELLINGS = (
    "as written",
    "with JSON escapes, also of JSON inside JSON",
    "accents composed and decomposed (NFC, NFD)",
)
"""The coverage of `Sought`, for reports."""
DEPTH = 4
"""How many times JSON may be inside JSON where whole files are searched. Rows are searched at any depth."""
PIECE_CHARS = 48
LONG_CHARS = 256
"""A longer text is searched by its beginning, its middle and its end: an excerpt of it counts too."""
_ESCAPES = {'"': '"', "\\": "", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_BY_LETTER = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = regex(r'\\+(?:u[0-9a-fA-F]{4}(?:\\+u[dD][c-fC-F][0-9a-fA-F]{2})?|["/bfnrt])|\\\\+')
_PRINTABLE = regex(rb"\\u00[2-7]")
"""An escape that JSON does not need: any plain letter may be behind it."""


class Sought:
    """A text to search for in bytes, in all its spellings."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def forms(self) -> tuple[bytes, ...]:
        """The spellings as bytes, for a search of whole files: with escapes of up to `DEPTH` levels."""
        found: dict[bytes, None] = {}
        for written in dict.fromkeys((self.text, normalize("NFC", self.text), normalize("NFD", self.text))):
            for is_ascii in (False, True):
                form = written
                for _ in range(DEPTH):
                    found[_utf8_bytes(form)] = None
                    form = json.dumps(form, ensure_ascii=is_ascii)[1:-1]
        return tuple(found)

    @cached_property
    def _written(self) -> bytes:
        return _utf8_bytes(self.text)

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        patterns = [b"".join(map(_any_of, _clusters(self.text)))]
        if self.text not in (normalize("NFC", self.text), normalize("NFD", self.text)):
            patterns.append(b"".join(map(_one, self.text)))
        return re.compile(b"|".join(patterns))

    @cached_property
    def _plain(self) -> bytes:
        """The longest part of it that has one spelling only, unless plain letters are escaped."""
        return _utf8_bytes(max(re.split(r'[^ -~]|["\\/]', self.text), key=len))

    @cached_property
    def _has_one_form(self) -> bool:
        return self.text == normalize("NFC", self.text) == normalize("NFD", self.text)

    @cached_property
    def _run(self) -> bytes:
        """The longest part of the text without a character that JSON may escape by a letter: it has one spelling."""
        if not self._has_one_form:
            return self._plain
        return _utf8_bytes(max(re.split(r'[\x00-\x1f"\\/]', self.text), key=len))

    def is_in(self, data: bytes) -> bool:
        """Return True if the bytes hold the text in any spelling."""
        return self.is_among(data, Escapes.in_(data))

    def is_among(self, data: bytes, escapes: "Escapes") -> bool:
        """The same, where it is known which escapes the bytes hold."""
        if self._written in data:
            return True
        if self._has_one_form and escapes is Escapes.NONE:
            return False
        if escapes < Escapes.ANY and (self._run if escapes < Escapes.CODES else self._plain) not in data:
            return False
        return self._pattern.search(data) is not None


class Escapes(IntEnum):
    """The escapes of JSON that bytes hold: none, those of one letter, codes of other characters, codes of any."""

    NONE = 0
    SHORT = 1
    CODES = 2
    ANY = 3

    @classmethod
    def in_(cls, data: bytes) -> "Escapes":
        """Those in some bytes."""
        if b"\\" not in data:
            return cls.NONE
        if b"\\u" not in data:
            return cls.SHORT
        return cls.CODES if _PRINTABLE.search(data) is None else cls.ANY


def found_in(data: bytes, sought: Sequence[Sought]) -> list[int]:
    """The numbers of the texts that bytes hold."""
    escapes = Escapes.in_(data)
    return [n for n, one in enumerate(sought) if one.is_among(data, escapes)]


def pieces_of(text: str) -> tuple[str, ...]:
    """A text, or of a long one its beginning, its middle and its end."""
    if len(text) <= LONG_CHARS:
        return (text,)
    middle = len(text) // 2
    return text[:PIECE_CHARS], text[middle : middle + PIECE_CHARS], text[-PIECE_CHARS:]


class Unescaped(NamedTuple):
    """A text without JSON escapes, and where each of its characters begins in the original; then where that ends."""

    text: str
    starts: list[int]


def unescaped(text: str) -> Unescaped | None:
    """Return the text with each JSON escape, at any depth, as its character; `None` if it has no escapes."""
    parts: list[str] = []
    starts: list[int] = []
    done = 0
    for match in _ESCAPED.finditer(text):
        parts.append(text[done : match.start()])
        starts += range(done, match.start())
        character = _character(match.group())
        parts.append(character)
        starts += [match.start()] * len(character)
        done = match.end()
    if not done:
        return None
    parts.append(text[done:])
    starts += range(done, len(text) + 1)
    return Unescaped("".join(parts), starts)


def _character(escape: str) -> str:
    sign = escape.lstrip("\\")
    if not sign:
        return "\\"
    if not sign.startswith("u"):
        return _BY_LETTER[sign]
    high, _, low = sign[1:].partition("u")
    code = int(high.rstrip("\\"), 16)
    if not low:
        return chr(code)
    if 0xD800 <= code < 0xDC00:
        return chr(0x10000 + ((code - 0xD800) << 10) + int(low, 16) - 0xDC00)
    return chr(code) + chr(int(low, 16))


def _clusters(text: str) -> Iterator[str]:
    """The characters of a text, each decomposed, with the combining marks behind it."""
    cluster = ""
    for character in normalize("NFD", text):
        is_joined = combining(character) or len(normalize("NFC", cluster + character)) == 1
        if cluster and not is_joined:
            yield cluster
            cluster = ""
        cluster += character
    if cluster:
        yield cluster


def _any_of(cluster: str) -> bytes:
    spelled = dict.fromkeys((normalize("NFC", cluster), cluster))
    found = [b"".join(map(_one, written)) for written in spelled]
    return found[0] if len(found) == 1 else b"(?:" + b"|".join(found) + b")"


def _one(character: str) -> bytes:
    """A pattern for one character, itself or escaped."""
    code = ord(character)
    units = [code] if code < 0x10000 else [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF)]
    escaped = b"".join(rb"\\+u" + _digits(f"{unit:04x}") for unit in units)
    letter = _ESCAPES.get(character)
    short = b"" if letter is None else rb"|\\+" + re.escape(letter).encode()
    return b"(?:" + re.escape(_utf8_bytes(character)) + b"|" + escaped + short + b")"


def _digits(digits: str) -> bytes:
    return "".join(one if one.isdigit() else f"[{one}{one.upper()}]" for one in digits).encode()


def _utf8_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
