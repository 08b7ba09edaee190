"""`engine.tenant(id).agent_md`: what people wrote for their agents, and the lines that were promoted to it."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import cast

import msgspec

from memory_engine.errors import NotText, UnknownLine
from memory_engine.events import AgentMdPromoted, AgentMdRemoved, AgentMdUploaded, Event, MemoryForget
from memory_engine.handle import ThreadHandle
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows
from memory_engine.projections.promotion.agent_md_text import PromotedText, one_line, read_back, render
from memory_engine.projections.promotion.wording import same_text
from memory_engine.records import RecordedEvent

OWN = "own"
"""Key of the row that holds what people wrote."""


class OwnText(msgspec.Struct, frozen=True, tag="own"):
    """What people wrote, and the event that brought it."""

    content: str
    seq: int
    event_id: str


class LineSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One promotion of a line: the event here, and the events (`sources`) of `source_thread` that it was drawn from."""

    text: str
    seq: int
    event_id: str
    reason: str = ""
    source_thread: str = ""
    sources: tuple[str, ...] = ()


class PromotedLine(msgspec.Struct, frozen=True, tag="line"):
    """A promoted line. `id` is the seq of its first promotion; the same text promoted again is one more source."""

    id: int
    promotions: tuple[LineSource, ...]

    @property
    def text(self) -> str:
        """The text as the earliest promotion that stands has it."""
        return self.promotions[0].text


class AgentMdFold:
    """A person's text under `own`; promoted lines under a digest of what they say, so that twins meet."""

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
                for key, line in _lines(rows):
                    if str(line.id) in ids:
                        rows.drop(key)
            case MemoryForget(seqs=seqs) if seqs:
                _forget(rows, frozenset(seqs))


def _promote(rows: Rows[OwnText | PromotedLine], promoted: AgentMdPromoted, event: RecordedEvent) -> None:
    if not one_line(promoted.content):
        return
    key = f"line/{sha256(same_text(one_line(promoted.content)).encode()).hexdigest()[:32]}"
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


def _forget(rows: Rows[OwnText | PromotedLine], seqs: frozenset[int]) -> None:
    own = rows.get(OWN)
    if isinstance(own, OwnText) and own.seq in seqs:
        rows.drop(OWN)
    for key, line in _lines(rows):
        kept = tuple(source for source in line.promotions if source.seq not in seqs)
        if not kept:
            rows.drop(key)
        elif len(kept) < len(line.promotions):
            rows.put(key, PromotedLine(line.id, kept))


def _lines(rows: ReadableRows[OwnText | PromotedLine]) -> list[tuple[str, PromotedLine]]:
    return [(key, row) for key, row in rows.items() if isinstance(row, PromotedLine)]


AGENT_MD = AgentMdFold()


class AgentMdChange(msgspec.Struct, frozen=True):
    """What an upload did: promoted lines removed by hand, lines of the promoted section that are own text now."""

    changed: bool
    removed: tuple[PromotedLine, ...] = ()
    moved: int = 0


class AgentMd:
    """A tenant's `agent.md`. People write it, promotion adds lines, either without touching the other's part."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def read(self, *, at: int | None = None) -> str:
        """The whole as Markdown: what people wrote, byte for byte, then the promoted lines with their ids."""
        rows = await self._thread.rows(AGENT_MD, at=at)
        shown = [PromotedText(line.id, line.text) for line in _sorted(rows)]
        return render(_own(rows), shown, thread_id=self._thread.id)

    async def own_text(self, *, at: int | None = None) -> str:
        """What people wrote."""
        return _own(await self._thread.rows(AGENT_MD, at=at))

    async def lines(self, *, at: int | None = None) -> tuple[PromotedLine, ...]:
        """The promoted lines with where they are from, oldest first."""
        return _sorted(await self._thread.rows(AGENT_MD, at=at))

    async def upload(self, markdown: str | Path) -> AgentMdChange:
        """Put a person's text, or the text of a file (a `Path`), in place of the one before.

        A file that was exported may come back edited. Of its promoted section an unchanged line stays promoted,
        one that was deleted is removed, a changed or new one joins the person's text. Lines that were promoted
        since the export stay. A text without that section leaves the promoted lines alone. Raises `OSError`, and
        `NotText` for a file that is not UTF-8; nothing is written then.
        """
        text = await _read(markdown) if isinstance(markdown, Path) else markdown
        rows = await self._thread.rows(AGENT_MD)
        lines = {line.id: line for line in _sorted(rows)}
        found = read_back(text, lines, thread_id=self._thread.id)
        events: list[Event] = []
        if found.own != _own(rows):
            events.append(AgentMdUploaded(content=found.own))
        if found.removed:
            events.append(AgentMdRemoved(lines=tuple(map(str, found.removed)), reason="deleted or changed by hand"))
        if events:
            await self._thread.dispatch_all(events)
        return AgentMdChange(bool(events), tuple(lines[number] for number in found.removed), found.moved)

    async def remove(self, *line_ids: int, reason: str = "") -> None:
        """Take promoted lines away. Raises `UnknownLine`. The same text may be promoted again, as a new line."""
        known = {line.id for line in await self.lines()}
        for line_id in line_ids:
            if line_id not in known:
                raise UnknownLine(line_id)
        if line_ids:
            await self._thread.dispatch(AgentMdRemoved(lines=tuple(map(str, line_ids)), reason=reason))

    async def export(self, path: str | Path) -> None:
        """Write the whole to a file, to be edited and uploaded again. Raises `OSError`."""
        content = (await self.read()).encode()
        await asyncio.to_thread(Path(path).write_bytes, content)


def _own(rows: ReadableRows[OwnText | PromotedLine]) -> str:
    own = rows.get(OWN)
    return own.content if isinstance(own, OwnText) else ""


def _sorted(rows: ReadableRows[OwnText | PromotedLine]) -> tuple[PromotedLine, ...]:
    return tuple(sorted((line for _, line in _lines(rows)), key=lambda line: line.id))


async def _read(path: Path) -> str:
    """The file's text, line ends as they are."""
    content = await asyncio.to_thread(path.read_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise NotText(str(path), error.start) from None
