"""From sections to passages: at paragraphs, sentences or words, with an overlap, never beyond a section.

Markdown gives a section under each heading, with the headings above it, and the values of the front matter.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import PurePath
from zlib import crc32

from attrs import frozen
from msgspec.structs import replace

from memory_engine.core.lazy import regex
from memory_engine.errors import InvalidDocument
from memory_engine.language.rough import SENTENCE_BORDER, between_marks
from memory_engine.views.documents.readers.document import DocumentSection, Loaded
from memory_engine.views.documents.readers.outline import HEADING_CHARS_MAX, Outline
from memory_engine.views.documents.readers.text import as_date, decoded

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


def split(sections: Sequence[DocumentSection], splitting: Splitting) -> list[DocumentSection]:
    """The passages of all sections, in order: each is its section with a part of its text.

    Sections without a letter give none.

    The splitter is that of the extra `documents` (semantic-text-splitter), else a small one that knows paragraphs,
    lines, sentences and words, and no Markdown.
    """
    text_splitter, markdown_splitter = _splitters(splitting)
    pieces = []
    for section in sections:
        cut = _cutter(markdown_splitter if section.is_markdown else text_splitter, splitting)
        short = section.text.strip()
        texts = (
            [short] if len(short) <= splitting.chars else chain.from_iterable(map(cut, _stretches(section, splitting)))
        )
        pieces += [replace(section, text=text) for text in texts if text.strip()]
    return pieces


STRETCH_PASSAGES_MIN, STRETCH_PASSAGES_MAX = 4, 32
UNBROKEN_PASSAGES_MAX = 2


def _cutter(cut: "_Split", splitting: Splitting) -> "_Split":
    """The splitter, given no more at once than it can take: its time grows with the square of what it is given.

    A longer stretch is parted before, where the simple splitter would; one of an unbroken text (no blank, no end of a
    sentence, over two passages) is left to the simple splitter, which takes no time for it.
    """
    most = STRETCH_PASSAGES_MAX * splitting.chars

    def cut_within(stretch: str) -> Iterator[str]:
        begin = end = 0
        for start, after in _spans(stretch, 0, len(stretch), most, 0) if len(stretch) > most else ():
            if after - begin > most:
                yield from cut_one(stretch[begin:end])
                begin = start
            end = after
        yield from cut_one(stretch[begin:])

    def cut_one(text: str) -> Iterable[str]:
        is_unbroken = _is_unbroken(text, UNBROKEN_PASSAGES_MAX * splitting.chars)
        return split_simply(text, splitting) if is_unbroken else cut(text)

    return cut_within


def _is_unbroken(text: str, most: int) -> bool:
    """Whether more than `most` characters of a text have no blank and no end of a sentence among them."""
    half = most // 2
    if all(_BLANK.search(text, at, at + half) for at in range(0, len(text) - half + 1, half)):
        return False  # a long run without a blank would fill one of these halves
    words = text.split()
    return _longest(words) > most and _longest(chain.from_iterable(map(between_marks, words))) > most


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


_BLANK = regex(r"\s")
STRETCH_ENDS_ONE_IN = 8


def _stretches(section: DocumentSection, splitting: Splitting) -> Iterator[str]:
    """A long section in stretches that end where a paragraph's own digest says so.

    The splitter fills each passage from where the one before ended: one word more would move all that follow, up to
    the section's end. So a change stays within its stretch and, at most, a few after it (content-defined chunking).
    """
    text, least = section.text, STRETCH_PASSAGES_MIN * splitting.chars
    start = before = 0
    fenced = False
    for found in (_PARAGRAPH if _PARAGRAPH.search(text) else _LINE).finditer(text):
        paragraph = text[before : found.start()]
        fenced ^= section.is_markdown and len(_FENCE_MARK.findall(paragraph)) % 2 == 1
        before = found.end()
        if found.start() - start >= least and not fenced and not crc32(paragraph.encode()) % STRETCH_ENDS_ONE_IN:
            yield text[start : found.start()]
            start = found.end()
    yield text[start:]


_PARAGRAPH, _LINE = regex(r"\n(?:[^\S\n]*\n)+"), regex(r"\n+")
_FENCE_MARK = regex(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_Split = Callable[[str], Iterable[str]]


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


_BOUNDARIES = (regex(r"\n\s*\n"), regex(r"\n"), SENTENCE_BORDER, regex(r"\s+"))
"""Where a text may be cut, best first."""


def split_simply(text: str, splitting: Splitting) -> list[str]:
    """The passages of one text, without a library: the largest parts that fit, joined as long as they fit."""
    parts = list(_spans(text, 0, len(text), splitting.chars, 0))
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
        # an overlap that would leave no room for new text is left out
        first = following if parts[last + 1][1] - parts[following][0] <= splitting.chars else last + 1
    return [passage for passage in passages if passage]


def _spans(text: str, start: int, end: int, chars: int, level: int) -> Iterator[tuple[int, int]]:
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
            yield from _spans(text, at, found.start(), chars, level + 1)
        at = found.end()
    if at < end:
        yield from _spans(text, at, end, chars, level + 1)


_HEADING = regex(r" {0,3}(?P<marks>#{1,6})(?=[ \t]|$)")
_CLOSING = regex(r"(?:^|[ \t])#+$")
_FENCE = regex(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<rest>.*)$")
_UNDERLINE = regex(r" {0,3}(?P<mark>=+|-+)[ \t]*$")
_NO_TITLE = regex(r"\s*$| {4}|\t| {0,3}(?:[-*+>|]|\d{1,9}[.)])[ \t]| {0,3}[|>]")
"""Lines that a row of marks below does not make a heading: blank, code, lists, quotes, tables."""
_NAME = regex(r"[A-Za-z][\w-]*")
_INLINE = regex(r"!?\[([^\[\]]*)\]\([^()]*\)|[`*]+|(?<!\w)_+|_+(?!\w)")
_HEADING_READ_MAX = 1_000
"""Of a longer heading this beginning is read."""


def read_markdown(content: bytes, path: str) -> Loaded:
    """A Markdown file. Its title is that of the front matter, else its first heading, else the file's name.

    Raises `Unreadable`.
    """
    return markdown_document(decoded(content), path, PurePath(path).stem)


def markdown_document(text: str, document_id: str, title: str, *, is_titled: bool = False) -> Loaded:
    """A Markdown text that is at hand. `title` is for one that has none of its own, unless it `is_titled` so."""
    fields, body = _front_matter(text)
    outline = _outline(body.split("\n"))
    said = fields.pop("title", "")
    own = title if is_titled else said or outline.first_heading or title
    author = fields.pop("author", "") or fields.pop("authors", "")
    date: datetime | None = as_date(fields.get("date", ""))
    if date is not None:
        del fields["date"]
    return Loaded(
        id=document_id,
        title=own,
        format="markdown",
        sections=outline.sections(own, is_markdown=True),
        source=document_id,
        author=author,
        date=date,
        metadata=fields,
    )


def _outline(lines: Sequence[str]) -> Outline:
    """The lines under each heading, by CommonMark's rules for headings and fenced code alone.

    A parser of all Markdown (markdown-it-py) knows headings of several lines and those in HTML comments. In
    files as people write them it finds the same ones, takes over twenty times as long, and would have to be installed.
    """
    outline = Outline()
    fence = ""
    for line in lines:
        fenced = _FENCE.match(line)
        level, text = 0, ""
        if fence:
            if fenced and fenced["marks"].startswith(fence) and not fenced["rest"].strip():
                fence = ""
        elif fenced and not (fenced["marks"][0] == "`" and "`" in fenced["rest"]):
            fence = fenced["marks"]
        elif found := _HEADING.match(line):
            level, text = len(found["marks"]), _CLOSING.sub("", line[found.end() :].strip()[:_HEADING_READ_MAX])
        elif (found := _UNDERLINE.match(line)) and outline.lines and not _NO_TITLE.match(outline.lines[-1]):
            level, text = (1 if found["mark"][0] == "=" else 2), outline.lines.pop()
        if level:
            outline.heading(level, _heading_text(text))
        else:
            outline.lines.append(line)
    return outline


def _heading_text(heading: str) -> str:
    """A heading as text, without the marks of emphasis, code and links."""
    bare = _INLINE.sub(lambda found: found[1] or "", heading[:_HEADING_READ_MAX])
    return " ".join(bare.split())[:HEADING_CHARS_MAX]


def _front_matter(text: str) -> tuple[dict[str, str], str]:
    """The plain `name: value` lines between two `---` at the start, and the text after them."""
    if not text.startswith("---\n"):
        return {}, text
    end = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE).search(text, 4)
    if end is None:
        return {}, text
    parts = (line.partition(":") for line in text[4 : end.start()].splitlines())
    found = {name.strip(): value.strip().strip("\"'") for name, _, value in parts if not name[:1].isspace()}
    return {name.lower(): value for name, value in found.items() if value and _NAME.fullmatch(name)}, text[end.end() :]
