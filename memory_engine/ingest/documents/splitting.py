"""From sections to passages: at paragraphs, sentences or words, with an overlap, never beyond a section."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from zlib import crc32

from attrs import frozen

from memory_engine.errors import InvalidDocument
from memory_engine.ingest.documents.values import Section
from memory_engine.regex import regex

CHARS_MIN, CHARS_MAX = 200, 4_000


@frozen
class Splitting:
    """How large passages are: at most `chars` characters (200 to 4,000).

    Of these up to `overlap` (0 to a half) repeat the end of the passage before. Raises `InvalidDocument`.
    """

    chars: int = 800
    overlap: int = 100

    def __attrs_post_init__(self) -> None:
        if not CHARS_MIN <= self.chars <= CHARS_MAX:
            raise InvalidDocument("passages of chars", self.chars, f"use {CHARS_MIN} to {CHARS_MAX}")
        if not 0 <= self.overlap <= self.chars // 2:
            raise InvalidDocument("an overlap", self.overlap, f"use 0 to {self.chars // 2}, half a passage")


@frozen
class Piece:
    """A passage, before it has a place: what its section says of itself, and a part of its text."""

    text: str
    about: str
    speaker: str
    at_us: int | None


def split(sections: Sequence[Section], splitting: Splitting) -> list[Piece]:
    """The passages of all sections, in order. Sections without a letter give none.

    The splitter is that of the extra `documents` (semantic-text-splitter), else a small one that knows paragraphs,
    lines, sentences and words, and no Markdown.
    """
    text_splitter, markdown_splitter = _splitters(splitting)
    pieces = []
    for section in sections:
        cut = markdown_splitter if section.is_markdown else text_splitter
        short = section.text.strip()
        texts = (
            [short] if len(short) <= splitting.chars else chain.from_iterable(map(cut, _stretches(section, splitting)))
        )
        pieces += [Piece(text, section.about, section.speaker, section.at_us) for text in texts if text.strip()]
    return pieces


STRETCH_PASSAGES_MIN = 4
STRETCH_ENDS_ONE_IN = 8


def _stretches(section: Section, splitting: Splitting) -> Iterator[str]:
    """A long section in stretches that end where a paragraph's own digest says so.

    The splitter fills each passage from where the one before ended: one word more would move all that follow, up to
    the section's end. So a change stays within its stretch and, at most, a few after it (content-defined chunking).
    """
    text, least = section.text, STRETCH_PASSAGES_MIN * splitting.chars
    start = before = 0
    fenced = False
    for found in (_PARAGRAPH if _PARAGRAPH.search(text) else _LINE).finditer(text):
        paragraph = text[before : found.start()]
        fenced ^= section.is_markdown and len(_FENCE.findall(paragraph)) % 2 == 1
        before = found.end()
        if found.start() - start >= least and not fenced and not crc32(paragraph.encode()) % STRETCH_ENDS_ONE_IN:
            yield text[start : found.start()]
            start = found.end()
    yield text[start:]


_PARAGRAPH, _LINE = regex(r"\n(?:[^\S\n]*\n)+"), regex(r"\n+")
_FENCE = regex(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_Split = Callable[[str], Sequence[str]]


def _splitters(splitting: Splitting) -> tuple[_Split, _Split]:
    """One for text and one for Markdown."""
    try:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter
    except ModuleNotFoundError:

        def simple(text: str) -> list[str]:
            return split_simply(text, splitting)

        return simple, simple
    text = TextSplitter(splitting.chars, overlap=splitting.overlap)
    return text.chunks, MarkdownSplitter(splitting.chars, overlap=splitting.overlap).chunks


_BOUNDARIES = tuple(regex(pattern) for pattern in (r"\n\s*\n", r"\n", r"(?<=[.!?…。！？])\s+", r"\s+"))  # noqa: RUF001 - marks of several scripts
"""Where a text may be cut, best first."""


def split_simply(text: str, splitting: Splitting) -> list[str]:
    """The passages of one text, without a library: the largest parts that fit, joined as long as they fit."""
    parts = list(_parts(text, 0, len(text), splitting.chars, 0))
    passages: list[str] = []
    first = 0
    while first < len(parts):
        last = first
        while last + 1 < len(parts) and parts[last + 1][1] - parts[first][0] <= splitting.chars:
            last += 1
        passages.append(text[parts[first][0] : parts[last][1]].strip())
        if last + 1 == len(parts):
            break
        following = last + 1
        while following - 1 > first and parts[last][1] - parts[following - 1][0] <= splitting.overlap:
            following -= 1
        # an overlap that would leave no room for what comes next is left out
        first = following if parts[last + 1][1] - parts[following][0] <= splitting.chars else last + 1
    return [passage for passage in passages if passage]


def _parts(text: str, start: int, end: int, chars: int, level: int) -> Iterator[tuple[int, int]]:
    """Where the parts of `text[start:end]` begin and end, each of at most `chars`."""
    if end - start <= chars:
        yield start, end
        return
    if level == len(_BOUNDARIES):
        yield from ((at, min(at + chars, end)) for at in range(start, end, chars))
        return
    at = start
    for found in _BOUNDARIES[level].finditer(text, start, end):
        if found.start() > at:
            yield from _parts(text, at, found.start(), chars, level + 1)
        at = found.end()
    if at < end:
        yield from _parts(text, at, end, chars, level + 1)
