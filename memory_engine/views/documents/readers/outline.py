"""A document as its reader collects it from the top: headings, and lines below each."""

from attrs import define, field, frozen

from memory_engine.core.lazy import regex
from memory_engine.core.limits import ReadingLimits
from memory_engine.views.documents.readers.document import DocumentSection, Unreadable

HEADING_CHARS_MAX = 120
BETWEEN = " > "


@frozen
class _Part:
    """Lines under a heading, and that heading with those above it, outermost first."""

    headings: tuple[str, ...]
    lines: tuple[str, ...]


@define
class Outline:
    """Headings with the lines below them. `lines` are those since the last heading: append to it."""

    lines: list[str] = field(factory=list)
    _parts: list[_Part] = field(factory=list)
    _headings: dict[int, str] = field(factory=dict)

    def heading(self, level: int, text: str) -> None:
        """Begin a part under a heading of this level, which ends those of its own and of deeper levels."""
        self._parts.append(self._part())
        self.lines = []
        self._headings = {depth: above for depth, above in self._headings.items() if depth < level}
        self._headings[level] = text

    def _part(self) -> _Part:
        return _Part(tuple(self._headings.values()), tuple(self.lines))

    @property
    def first_heading(self) -> str:
        """The first heading; empty without one."""
        return next((part.headings[0] for part in (*self._parts, self._part()) if part.headings), "")

    def sections(self, title: str, *, is_markdown: bool = False) -> tuple[DocumentSection, ...]:
        """A section for each part with text. A heading with nothing below it is text, unless others are below it.

        A first heading that equals the title is left out of what the sections are about.
        """
        parts = [*self._parts, self._part()]
        sections = []
        for n, part in enumerate(parts):
            shown = part.headings[1:] if part.headings[:1] == (title,) else part.headings
            text = "\n".join(part.lines).strip("\n")
            deeper = n + 1 < len(parts) and parts[n + 1].headings[: len(part.headings)] == part.headings
            if text.strip():
                sections.append(DocumentSection(text=text, about=BETWEEN.join(shown), is_markdown=is_markdown))
            elif part.headings and not deeper:
                about = BETWEEN.join(shown[:-1])
                sections.append(DocumentSection(text=part.headings[-1], about=about, is_markdown=is_markdown))
        return tuple(sections)


_BLANKS = regex(r"[^\S\n]+")


@define
class Blocks:
    """Puts the blocks of a page into an outline, apart by blank lines; list items and rows follow without one.

    Raises `Unreadable` for more text than a file may have bytes: the labels of rows can make much of little.
    """

    limits: ReadingLimits
    outline: Outline = field(factory=Outline)
    _before: str = ""
    _chars: int = 0

    @property
    def has_words(self) -> bool:
        """Return True once anything was put."""
        return self._chars > 0

    def put(self, text: str, kind: str = "paragraph", mark: str = "") -> None:
        """Add a block of this kind, with a mark before its first line. A block without words adds nothing."""
        text = text if kind == "pre" else squeezed(text)
        if not text.strip():
            return
        lines = self.outline.lines
        if lines and not (kind == self._before and kind in ("item", "row")):
            lines.append("")
        lines.append(mark + text)
        self._before = kind
        self._count(len(mark) + len(text))

    def gap(self) -> None:
        """Let the next block stand apart, whatever its kind."""
        self._before = ""

    def heading(self, level: int, text: str) -> None:
        """Add a heading; one too long to be shown above each passage is a paragraph."""
        text = " ".join(text.split())
        if len(text) > HEADING_CHARS_MAX:
            self.put(text)
        elif text:
            self.outline.heading(level, text)
            self._count(len(text))

    def _count(self, chars: int) -> None:
        self._chars += chars
        if self._chars > self.limits.file_bytes:
            raise Unreadable(f"its text has over {self.limits.file_bytes:,} characters", limit="file_bytes")


def squeezed(text: str) -> str:
    """The text with single blanks and without empty lines."""
    lines = (line.strip() for line in _BLANKS.sub(" ", text).split("\n"))
    return "\n".join(filter(None, lines))
