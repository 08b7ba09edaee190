"""Markdown: a section under each heading, with the headings above it, and what the front matter says."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import PurePath

from attrs import frozen

from memory_engine.ingest.documents.dates import as_date
from memory_engine.ingest.documents.decoding import decoded
from memory_engine.ingest.documents.values import Loaded, Section
from memory_engine.regex import regex

_HEADING = regex(r" {0,3}(?P<marks>#{1,6})(?=[ \t]|$)")
_CLOSING = regex(r"(?:^|[ \t])#+$")
_FENCE = regex(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<rest>.*)$")
_UNDERLINE = regex(r" {0,3}(?P<mark>=+|-+)[ \t]*$")
_NO_TITLE = regex(r"\s*$| {4}|\t| {0,3}(?:[-*+>|]|\d{1,9}[.)])[ \t]| {0,3}[|>]")
"""Lines that a row of marks below does not make a heading: blank, code, lists, quotes, tables."""
_NAME = regex(r"[A-Za-z][\w-]*")
_INLINE = regex(r"!?\[([^\[\]]*)\]\([^()]*\)|[`*]+|(?<!\w)_+|_+(?!\w)")
HEADING_CHARS_MAX = 120
_HEADING_READ_MAX = 1_000
"""Of a longer heading this beginning is read."""
BETWEEN = " > "


def read_markdown(content: bytes, path: str) -> Loaded:
    """A Markdown file. Its title is what the front matter says, else its first heading, else the file's name.

    Raises `Unreadable`.
    """
    return markdown_document(decoded(content), path, PurePath(path).stem)


def markdown_document(text: str, document_id: str, title: str, *, is_titled: bool = False) -> Loaded:
    """A Markdown text that is at hand. `title` is for one that has none of its own, unless it `is_titled` so."""
    fields, body = _front_matter(text)
    parts = list(_parts(body.split("\n")))
    first = next((part.headings[0] for part in parts if part.headings), "")
    said = fields.pop("title", "")
    own = title if is_titled else said or first or title
    author = fields.pop("author", "") or fields.pop("authors", "")
    date: datetime | None = as_date(fields.get("date", ""))
    if date is not None:
        del fields["date"]
    return Loaded(
        id=document_id,
        title=own,
        format="markdown",
        sections=_sections(parts, own),
        source=document_id,
        author=author,
        date=date,
        metadata=fields,
    )


@frozen
class _Part:
    """Lines under a heading, and that heading with those above it, outermost first."""

    headings: tuple[str, ...]
    lines: tuple[str, ...]


def _sections(parts: Sequence[_Part], title: str) -> tuple[Section, ...]:
    """A section for each part with text; a heading with nothing below it stands for itself, where it is the last."""
    sections = []
    for n, part in enumerate(parts):
        shown = part.headings[1:] if part.headings[:1] == (title,) else part.headings
        text = "\n".join(part.lines).strip("\n")
        deeper = n + 1 < len(parts) and parts[n + 1].headings[: len(part.headings)] == part.headings
        if text.strip():
            sections.append(Section(text, BETWEEN.join(shown), is_markdown=True))
        elif part.headings and not deeper:
            sections.append(Section(part.headings[-1], BETWEEN.join(shown[:-1]), is_markdown=True))
    return tuple(sections)


def _parts(lines: Sequence[str]) -> Iterator[_Part]:
    headings: dict[int, str] = {}
    held: list[str] = []
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
        elif (found := _UNDERLINE.match(line)) and held and not _NO_TITLE.match(held[-1]):
            level, text = (1 if found["mark"][0] == "=" else 2), held.pop()
        if not level:
            held.append(line)
            continue
        yield _Part(tuple(headings.values()), tuple(held))
        held = []
        headings = {depth: above for depth, above in headings.items() if depth < level}
        headings[level] = _shown(text)
    yield _Part(tuple(headings.values()), tuple(held))


def _shown(heading: str) -> str:
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
