"""`engine.tenant(id).agent_md`: people's own text for their agents, and the lines that were promoted to it.

`agent.md` as a file: a person's own text, byte for byte, then the promoted lines, marked by comments.

    …the text that people wrote…

    ## Promoted
    <!-- promoted lines up to 57 of 3f9a01c2: … -->
    - Revenue dips every Sunday. <!-- promoted 12 9ac31e07 -->

A line's comment holds its id and a digest of its text, so that a file which comes back shows by itself what a
person changed in it.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import cast

import msgspec

from memory_engine.core.arguments import PathLike, checked_file, checked_list, checked_text, checked_type
from memory_engine.core.bounded import read_file
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.lazy import regex
from memory_engine.core.records import RecordedEvent
from memory_engine.errors import NotText, UnknownLine
from memory_engine.projections.base import ProjectionMode, ReadableRows, RowOrigin, Rows
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.promotion.events import AgentMdPromoted, AgentMdRemoved, AgentMdUploaded
from memory_engine.views.promotion.wording import same_text

HEADING = "## Promoted"
DIGEST_CHARS = 8
SECTION = regex(
    r"(?:\r\n\r\n|\n\n|\r?\n|\A)(?:## Promoted[ \t]*\r?\n(?:[ \t]*\r?\n)*)?"
    r"<!-- promoted lines up to (?P<upto>\d{1,15}) of (?P<origin>[0-9a-f]{8}):[^\n]*-->[ \t]*(?=\r?\n|\Z)"
)
"""The beginning of promoted lines: their comment, with or without the remains of the heading above it."""
BULLET = regex(r"[-*+] (?P<text>.*?) ?<!-- promoted (?P<id>\d{1,15}) (?P<digest>[0-9a-f]{8}) -->\s*\Z", re.DOTALL)


class PromotedText(msgspec.Struct, frozen=True):
    """A promoted line in the file: its id and its text."""

    id: int
    text: str


class ReadBack(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file: its own text, with lines that people wrote among the promoted ones moved to its end.

    `removed` are the ids of promoted lines that were deleted or changed. `moved` is how many lines went from the
    section to the text.
    """

    own: str
    removed: tuple[int, ...]
    moved: int


def render_agent_md(own: str, lines: Sequence[PromotedText], *, thread_id: str) -> str:
    """The file. Without promoted lines it is the text alone, unless that text seems to hold such a section."""
    if not lines and SECTION.search(own) is None:
        return own
    upto = max((line.id for line in lines), default=0)
    note = "an unchanged line stays promoted, a changed or new one becomes part of the text above"
    opening = f"{HEADING}\n<!-- promoted lines up to {upto} of {_text_digest(thread_id)}: {note} -->\n"
    bullets = "".join(f"{_bullet(line)}\n" for line in lines)
    return f"{own}\n\n{opening}{bullets}" if own else opening + bullets


def safe_line(text: str) -> str:
    """A text in a line: without line breaks, and unable to open a comment."""
    return " ".join(text.split()).replace("<!--", "&lt;!--")


def _bullet(line: PromotedText) -> str:
    text = safe_line(line.text)
    return f"- {text} <!-- promoted {line.id} {_text_digest(text)} -->"


def read_back(file: str, current: Iterable[int], *, thread_id: str) -> ReadBack:
    """The content of a file that may have been exported and edited; `current` are the ids of current lines.

    Without a section, all of it is a person's own text and every promoted line stays. With one: an unchanged line
    stays; a missing one is removed, if it existed when the file was written; a changed or new one is the person's own
    from now on. A line removed meanwhile stays removed, unless it is another tenant's.
    """
    section = _last(file)
    if section is None:
        return ReadBack(own=file, removed=(), moved=0)
    is_ours = section["origin"] == _text_digest(thread_id)
    kept: set[int] = set()
    moved: list[str] = []
    for line in file[section.end() :].split("\n"):
        bullet = BULLET.match(line)
        if bullet is None:
            moved.append(line.removesuffix("\r"))
        elif is_ours and _text_digest(bullet["text"]) == bullet["digest"]:
            kept.add(int(bullet["id"]))
        else:
            moved.append(f"- {bullet['text']}")
    upto = int(section["upto"])
    removed = tuple(line for line in sorted(current) if is_ours and line <= upto and line not in kept)
    own = file[: section.start()]
    added = "\n".join(moved).strip("\n")
    if added.strip():
        gap = "" if not own else "\n" if own.endswith("\n") else "\n\n"
        own = f"{own}{gap}{added}\n"
    return ReadBack(own=own, removed=removed, moved=sum(bool(line.strip()) for line in moved))


def _last(file: str) -> "re.Match[str] | None":
    """The last section of a file: an own text may quote one, ours comes after it."""
    return max(SECTION.finditer(file), key=lambda section: section.start(), default=None)


def _text_digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]


OWN = "own"
"""The key of the row that holds people's own text."""


class OwnText(msgspec.Struct, frozen=True, tag="own"):
    """People's own text, and the event that set it."""

    content: str
    seq: int
    event_id: str


class LineSource(RowOrigin, frozen=True, omit_defaults=True):
    """One promotion of a line."""

    text: str
    seq: int
    event_id: str
    reason: str = ""


class PromotedLine(msgspec.Struct, frozen=True, tag="line"):
    """A promoted line. `id` is the seq of its first promotion; the same text promoted again is one more source."""

    id: int
    promotions: tuple[LineSource, ...]

    @property
    def text(self) -> str:
        """The text of the earliest promotion still in force."""
        return self.promotions[0].text


class AgentMdFold:
    """A person's text under `own`; promoted lines under a digest of their words, so that duplicates share a row."""

    name = "agent_md"
    version = 1
    mode: ProjectionMode = "inline"
    row = cast("type[OwnText | PromotedLine]", OwnText | PromotedLine)
    events: tuple[type[Event], ...] = (AgentMdUploaded, AgentMdPromoted, AgentMdRemoved, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[OwnText | PromotedLine], event: RecordedEvent) -> None:
        """Set the text; add, remove or forget lines."""
        match event.event:
            case AgentMdUploaded(content=content):
                rows.put(OWN, OwnText(content, event.seq, event.id))
            case AgentMdPromoted() as promoted:
                _promote(rows, promoted, event)
            case AgentMdRemoved(lines=ids):
                for key, line in _promoted_rows(rows):
                    if str(line.id) in ids:
                        rows.drop(key)
            case MemoryForget(seqs=seqs) if seqs:
                _drop_forgotten_promotions(rows, frozenset(seqs))


def _promote(rows: Rows[OwnText | PromotedLine], promoted: AgentMdPromoted, event: RecordedEvent) -> None:
    if not safe_line(promoted.content):
        return
    key = f"line/{sha256(same_text(safe_line(promoted.content)).encode()).hexdigest()[:32]}"
    source = LineSource(
        text=promoted.content,
        seq=event.seq,
        event_id=event.id,
        reason=promoted.reason,
        source_thread=promoted.source_thread,
        sources=promoted.sources,
    )
    line = rows.get(key)
    earlier = line.promotions if isinstance(line, PromotedLine) else ()
    number = line.id if isinstance(line, PromotedLine) else event.seq
    rows.put(key, PromotedLine(number, (*earlier, source)))


def _drop_forgotten_promotions(rows: Rows[OwnText | PromotedLine], seqs: frozenset[int]) -> None:
    own = rows.get(OWN)
    if isinstance(own, OwnText) and own.seq in seqs:
        rows.drop(OWN)
    for key, line in _promoted_rows(rows):
        kept = tuple(source for source in line.promotions if source.seq not in seqs)
        if not kept:
            rows.drop(key)
        elif len(kept) < len(line.promotions):
            rows.put(key, PromotedLine(line.id, kept))


def _promoted_rows(rows: ReadableRows[OwnText | PromotedLine]) -> list[tuple[str, PromotedLine]]:
    return [(key, row) for key, row in rows.items() if isinstance(row, PromotedLine)]


AGENT_MD = AgentMdFold()


class AgentMdChange(msgspec.Struct, frozen=True):
    """The outcome of an upload: promoted lines removed by hand, lines of the promoted section that are own text now."""

    changed: bool
    removed: tuple[PromotedLine, ...] = ()
    moved: int = 0


class AgentMd:
    """A tenant's `agent.md`. People write it and promotion adds lines; neither touches the other's part."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def read(self, *, at: int | None = None) -> str:
        """The whole file as Markdown: people's own text, byte for byte, then the promoted lines with their ids."""
        rows = await self._thread.rows(AGENT_MD, at=at)
        shown = [PromotedText(line.id, line.text) for line in _sorted(rows)]
        return render_agent_md(_own_text(rows), shown, thread_id=self._thread.id)

    async def parts(self) -> tuple[OwnText | None, tuple[PromotedLine, ...]]:
        """People's own text with its origin, and the promoted lines, oldest first."""
        rows = await self._thread.rows(AGENT_MD)
        own = rows.get(OWN)
        return own if isinstance(own, OwnText) else None, _sorted(rows)

    async def own_text(self, *, at: int | None = None) -> str:
        """People's own text."""
        return _own_text(await self._thread.rows(AGENT_MD, at=at))

    async def lines(self, *, at: int | None = None) -> tuple[PromotedLine, ...]:
        """The promoted lines with their origin, oldest first."""
        return _sorted(await self._thread.rows(AGENT_MD, at=at))

    async def upload(self, markdown: PathLike) -> AgentMdChange:
        """Replace people's own text with a text, or the text of a file (a `Path`).

        An exported file may come back edited. In its promoted section an unchanged line stays promoted, a deleted one
        is removed, a changed or new one joins the person's text. Lines promoted since the export stay. A text without
        that section leaves the promoted lines alone. Raises `OSError`, and `NotText` for a file that is not UTF-8;
        nothing is written then.
        """
        checked_type("markdown", markdown, (str, os.PathLike), give="a text, or the Path of a file")
        text = markdown if isinstance(markdown, str) else await _read_markdown(checked_file("markdown", markdown))
        rows = await self._thread.rows(AGENT_MD)
        lines = {line.id: line for line in _sorted(rows)}
        found = read_back(text, lines, thread_id=self._thread.id)
        events: list[Event] = []
        if found.own != _own_text(rows):
            events.append(AgentMdUploaded(content=found.own))
        if found.removed:
            events.append(AgentMdRemoved(lines=tuple(map(str, found.removed)), reason="deleted or changed by hand"))
        if events:
            await self._thread.dispatch_all(events)
        return AgentMdChange(bool(events), tuple(lines[number] for number in found.removed), found.moved)

    async def remove(self, *line_ids: int, reason: str = "") -> None:
        """Remove promoted lines. Raises `UnknownLine`. The same text may be promoted again, as a new line."""
        checked_text("reason", reason)
        known = {line.id for line in await self.lines()}
        for line_id in checked_list("line_ids", line_ids, int, each="numbers of lines"):
            if line_id not in known:
                raise UnknownLine(line_id)
        if line_ids:
            await self._thread.dispatch(AgentMdRemoved(lines=tuple(map(str, line_ids)), reason=reason))

    async def export(self, path: PathLike) -> None:
        """Write the whole to a file, which you can edit and upload again. Raises `OSError`."""
        content = (await self.read()).encode()
        await asyncio.to_thread(checked_file("path", path).write_bytes, content)


def _own_text(rows: ReadableRows[OwnText | PromotedLine]) -> str:
    own = rows.get(OWN)
    return own.content if isinstance(own, OwnText) else ""


def _sorted(rows: ReadableRows[OwnText | PromotedLine]) -> tuple[PromotedLine, ...]:
    return tuple(sorted((line for _, line in _promoted_rows(rows)), key=lambda line: line.id))


async def _read_markdown(path: Path) -> str:
    """The file's text with its own line ends."""
    content = await asyncio.to_thread(read_file, path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise NotText(str(path), error.start) from None
