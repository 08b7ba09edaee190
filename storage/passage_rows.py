"""The words, marks and key prefixes of a passage's row, as every back end writes and reads them.

A passage is written with its text. Its words go to the full-text index later, many passages at a time, since that is
ten times cheaper than one at a time; until then a look-up reads them from the row.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias
from zlib import crc32

from memory_engine.language.text import TermsSought
from memory_engine.language.text import terms as analysed
from memory_engine.store.passages import PassageRow

VECTOR_BLOCKS = """CREATE TABLE vector_blocks (
    tid INTEGER NOT NULL,
    model TEXT NOT NULL,
    last INTEGER NOT NULL,
    places BLOB NOT NULL,
    numbers BLOB NOT NULL,
    PRIMARY KEY (tid, model, last)
) STRICT"""
"""Blocks of vectors, which `storage.vector_blocks` reads and writes."""
WAITING_MIN = 64
"""Passages that wait at least before their words go into the full-text index."""
INDEXED_MAX = 256
"""Passages indexed in one transaction: some milliseconds."""
INDEXED_BULK = 1_024
"""Passages in one transaction when a caller waits for all: each at half the cost, in tens of milliseconds."""
WORDS_CHARS_MAX = 32_768
"""Characters of texts whose words are taken in one transaction: some tens of milliseconds. One text may be longer."""
READ_CHARS_MAX = 262_144
"""Characters of waiting texts that a look-up reads: a quarter of a second of its thread."""
FIRST_OF_EVENT = 16
"""Passages of an event that are read before the others of long ones, which must not keep all else from being found."""
TAKEN = 8
"""Reading stored terms costs as much as analysing a text this number of times shorter."""
REMEMBERED_MAX = 1_024
REMEMBERED_CHARS_MAX = 4_096
"""Texts whose terms, and keys whose marks, are remembered while they wait; and how long these texts are at most."""
RAW = "\x01"
"""Begins the text of a passage whose words are not indexed yet."""
MARK = "¶"
"""Begins the word for a passage's kind or family: no analysed text has it, and FTS5 takes it for a letter."""


StoredWords: TypeAlias = tuple[int, str, str, int, int, str]
"""A passage as its row holds it: place, kind, key, when it was said, when it ended, and its words."""


class Waiting(NamedTuple):
    """A passage whose words are not indexed yet: its marks and terms, and their number where they are new."""

    place: int
    kind: str
    key: str
    at_us: int
    ended: int
    words: str
    size: int | None


def waiting_from(row: StoredWords, taken: Callable[[str], str] | None = None) -> Waiting:
    """A row that waits; `taken` gives the terms of its text, if not all of them are wanted."""
    place, kind, key, at_us, ended, stored = row
    words, size = stored, None
    if stored.startswith(RAW):
        terms = (taken or _search_terms)(stored[1:])
        words, size = f"{marks(kind, key)} {terms}", count(terms)
    return Waiting(place, kind, key, at_us, ended, words, size)


def terms_sought(wanted: Sequence[str]) -> Callable[[str], str]:
    """What reads a text for some terms. Its result has a word in place of each term that is not wanted."""
    read = TermsSought(wanted).read
    return lambda text: " ".join(read(text))


def _search_terms(text: str) -> str:
    """The terms of a text: every search looks at the texts of the latest passages."""
    return _remembered(text) if len(text) <= REMEMBERED_CHARS_MAX else " ".join(analysed(text))


@lru_cache(maxsize=REMEMBERED_MAX)
def _remembered(text: str) -> str:
    return " ".join(analysed(text))


def forget_texts() -> None:
    """Hold on to no text: some were deleted or erased."""
    _remembered.cache_clear()
    marks.cache_clear()


def within(rows: Iterable[StoredWords], chars_max: int) -> Iterator[StoredWords]:
    """The first rows, at least one, until their texts reach `chars_max`; stored terms count for less than a text."""
    for row in rows:
        yield row
        chars_max -= len(row[-1]) // (1 if row[-1].startswith(RAW) else TAKEN)
        if chars_max <= 0:
            return


def stored_terms(row: PassageRow) -> str:
    """The row's words: the text while it waits, else its marks and terms."""
    return RAW + row.text if row.text else f"{marks(row.kind, row.key)} {row.terms}"


def terms_of(kind: str, key: str, stored: str) -> str:
    """The terms of a row, without its marks."""
    if stored.startswith(RAW):
        return _search_terms(stored[1:])
    return stored.split(" ", 2 if key and family(key) else 1)[-1]


def count(terms: str) -> int:
    """How many terms there are."""
    return terms.count(" ") + 1 if terms else 0


@lru_cache(maxsize=REMEMBERED_MAX)
def marks(kind: str, key: str) -> str:
    """The full-text words of a passage's kind and family."""
    whole = family(key)
    return f"{mark(kind)} {mark(whole)}" if whole else mark(kind)


def mark(name: str) -> str:
    """The full-text word of a kind or a family."""
    return f"{MARK}{crc32(name.encode(errors='replace')):08x}"


def words_prefix(tenant_id: str) -> str:
    """The prefix of each word of a tenant's passages in the full-text index, so that its lists are only of this tenant.

    Two tenants may share one: who reads lists looks at whose passages they name.
    """
    return mark(tenant_id) + MARK if tenant_id else ""


def family(key: str) -> str:
    """The prefix of all keys of one layer or document: the key up to its second colon."""
    parts = key.split(":", 2)
    return f"{parts[0]}:{parts[1]}:" if len(parts) > 2 else ""


def beyond(prefix: str) -> str | bytes:
    """The bound after all keys that begin with a prefix, and before later ones: a text, or bytes (after any text)."""
    stem = prefix.rstrip(chr(sys.maxunicode))
    return stem[:-1] + ("\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1)) if stem else b""


def beyond_bytes(prefix: bytes) -> bytes:
    """The same of UTF-8: its bytes are all below 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"
