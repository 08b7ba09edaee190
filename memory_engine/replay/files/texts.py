"""Texts made harmless: what a pattern matches goes, and what names something gets another name."""

import re
from collections.abc import Sequence
from enum import Enum
from hashlib import sha256

import msgspec

from memory_engine.regex import regex
from memory_engine.replay.redaction import STAND_IN

_NAME_PREFIX = "redacted:"
_NAME_DIGITS = 16
_CHUNK_ID = regex(r"[0-9]+\.[0-9]+")
_UUID = regex(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DERIVED = regex(r"[a-z -]+:[0-9a-f]{32,64}(\.[0-9]+)?")
_JSON_DEPTH_MAX = 8
_STATUSES = frozenset(
    "abandoned approval completed failed in_progress pending recalled redacted retry started terminated".split()
)


class Kind(Enum):
    """What a text of an event is for.

    `TEXT` is read, `JSON` is read by programs. `NAME` names something, in words or by a digest of words: it gets
    another name where its event is hidden. `ID` binds events together, and tells nothing: it stays, unless it is of a
    type that is not the package's own. `CHUNK` is a chunk's id. `STATUS` is a word of a few, or anything.
    """

    TEXT = 1
    JSON = 2
    NAME = 3
    ID = 4
    CHUNK = 5
    STATUS = 6


class Scrubber:
    """Takes out what patterns match, and gives the same other name for a name each time.

    Other names are made with a secret that nobody keeps: they cannot be guessed back, whatever they stand for.
    """

    def __init__(self, patterns: Sequence[str], secret: bytes) -> None:
        self._patterns = tuple(re.compile(pattern) for pattern in patterns)
        self._secret = secret
        self.hits = [0] * len(self._patterns)

    def scrubbed(self, text: str) -> str:
        """The text without what a pattern matches, also within JSON that it holds, whatever is escaped there."""
        if not self._patterns or not text:
            return text
        return self._scrubbed(text, 0)

    def matches(self, text: str) -> bool:
        """Whether a pattern matches in the text."""
        return self.scrubbed(text) != text

    def named(self, name: str) -> str:
        """The name, or another one where a pattern matches in it."""
        return self.renamed(name) if self.matches(name) else name

    def first_in(self, text: str) -> str:
        """The first pattern that matches in a text; empty if none does."""
        return next((pattern.pattern for pattern in self._patterns if pattern.search(text)), "")

    def renamed(self, name: str) -> str:
        """Another name for it, always the same."""
        if not name or name.startswith(_NAME_PREFIX):
            return name
        digest = sha256(self._secret + name.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{_NAME_PREFIX}{digest[:_NAME_DIGITS]}"

    def value(self, value: object, depth: int = 0) -> object:
        """A JSON value of any shape, its keys included."""
        match value:
            case str():
                return self._scrubbed(value, depth)
            case bool() | None:
                return value
            case int() | float():
                return STAND_IN if self.matches(str(value)) else value
            case list():
                return [self.value(item, depth) for item in value]
            case dict():
                return {self.named(key): self.value(item, depth) for key, item in value.items()}
        return value

    def _scrubbed(self, text: str, depth: int) -> str:
        if text.lstrip()[:1] in ("{", "[") and depth < _JSON_DEPTH_MAX:
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                pass
            else:
                clean = self.value(value, depth + 1)
                if clean != value:
                    text = msgspec.json.encode(clean).decode()
        for n, pattern in enumerate(self._patterns):
            text, found = pattern.subn(lambda _match: STAND_IN, text)
            self.hits[n] += found
        return text


def is_status(text: str) -> bool:
    """Whether a chunk's status says how it stands, and no more: a thought keeps its signature there."""
    return text in _STATUSES


def is_opaque(text: str) -> bool:
    """Whether an id is one that the engine gave: digits that tell nothing, whatever pattern may match in them."""
    return _UUID.fullmatch(text) is not None or _DERIVED.fullmatch(text) is not None


def is_chunk_id(text: str) -> bool:
    """Whether a text is a chunk's id."""
    return _CHUNK_ID.fullmatch(text) is not None
