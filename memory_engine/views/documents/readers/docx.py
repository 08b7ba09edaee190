"""Word files (`.docx`): paragraphs under their headings, lists and tables, as the file's XML has them.

Changes that are tracked count as accepted; comments, fields' codes and tables of contents are left out.
"""

from collections.abc import Mapping
from io import BytesIO
from pathlib import PurePath
from typing import TYPE_CHECKING

from attrs import define, field

from memory_engine.core.lazy import lazy_module, regex
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.views.documents.readers.document import Archive, Loaded, Unreadable, check_limit
from memory_engine.views.documents.readers.outline import Blocks, squeezed
from memory_engine.views.documents.readers.tables import Grid, is_header
from memory_engine.views.documents.readers.text import as_date

if TYPE_CHECKING:
    from xml.parsers import expat
else:
    expat = lazy_module("xml.parsers.expat")

_STYLES, _TEXT, _NOTES, _ABOUT = "word/styles.xml", "word/document.xml", "word/footnotes.xml", "docProps/core.xml"
_STYLE_CHARS_MAX, _PROPERTY_CHARS_MAX = 40, 200
_LIST_DEPTH_MAX, _TABLE_DEPTH_MAX, _BASES_MAX = 8, 50, 10
_HEADING = regex(r"heading ?([1-9])|title")
_OUTLINE_LEVELS = frozenset("012345678")
_LIST_STYLES = ("list bullet", "list number")
_UNSAID = frozenset({"del", "moveFrom", "Fallback", "pPrChange", "rPrChange", "tblPrChange"})
_BREAKS: Mapping[str, str] = {"br": "\n", "cr": "\n", "tab": " ", "noBreakHyphen": "-"}
_COLUMNS_NAMED_MIN = 3
"""A table of two columns has names in its first column as often as in its first row."""


def read_docx(content: bytes, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Loaded:
    """A Word file. Its title is that of its properties, else its first heading, else the file's name.

    Raises `Unreadable` for another file, one locked by a password, and one that passes a limit.
    """
    if not content.strip():
        raise Unreadable("it is empty")
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        raise Unreadable("it is a Word file of the old kind, or locked by a password: save it as .docx, unlocked")
    archive = Archive(BytesIO(content), limits)
    names = {name for name in archive.names() if name in (_STYLES, _TEXT, _NOTES, _ABOUT)}
    if _TEXT not in names:
        raise Unreadable(f"it is not a Word file: {_TEXT} is not in it")
    archive.check(names)

    def read(name: str, into: "_Xml") -> None:
        if name in names:
            _parse(archive.read(name), into, name, limits)

    styles, about = _Styles(), _Properties()
    read(_STYLES, styles)
    read(_ABOUT, about)
    body, notes = _Body(limits, styles), _Body(limits, styles)
    read(_TEXT, body)
    read(_NOTES, notes)
    if notes.blocks.has_words:
        body.blocks.outline.heading(1, "Footnotes")
        body.blocks.outline.lines += notes.blocks.outline.lines
    outline = body.blocks.outline
    title = about.get("title") or outline.first_heading or PurePath(path).stem
    return Loaded(
        id=path,
        title=title,
        format="docx",
        sections=outline.sections(title),
        source=path,
        author=about.get("creator"),
        date=as_date(about.get("modified") or about.get("created")),
    )


class _Xml:
    """What is done at each element of a file, by its name without namespace, and at its text."""

    def begin(self, name: str, values: Mapping[str, str]) -> None:
        """At the start of an element, with the values of its attributes."""

    def end(self, name: str) -> None:
        """At its end."""

    def text(self, text: str) -> None:
        """At text within it."""


def _parse(content: bytes, into: _Xml, name: str, limits: ReadingLimits) -> None:
    """Walk a file of XML. Raises `Unreadable` for a broken one, and for one that declares types: Word's do not."""
    check_limit(content.count(b"<"), limits, "markup_tags", "tags or more", name)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        raise Unreadable("it declares a document type, as no Word file does", name)

    def plain(written: str) -> str:
        return written.rpartition(" ")[2]

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda tag, values: into.begin(
        plain(tag), {plain(key): value for key, value in values.items()}
    )
    parser.EndElementHandler = lambda tag: into.end(plain(tag))
    parser.CharacterDataHandler = into.text
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise Unreadable(f"it is not XML: {error}", name) from None


@define
class _Styles(_Xml):
    """The names of styles by their ids, which are in the language of who wrote the file, and their heading levels."""

    names: dict[str, str] = field(factory=dict)
    levels: dict[str, int] = field(factory=dict)
    _based_on: dict[str, str] = field(factory=dict)
    _id: str = ""

    def begin(self, name: str, values: Mapping[str, str]) -> None:
        """Note what a style says."""
        value = values.get("val", "")[:_STYLE_CHARS_MAX]
        match name:
            case "style":
                self._id = values.get("styleId", "")[:_STYLE_CHARS_MAX]
            case "name":
                self.names.setdefault(self._id, value.lower())
            case "basedOn":
                self._based_on.setdefault(self._id, value)
            case "outlineLvl":
                self.levels.setdefault(self._id, _level(value))

    def name(self, style: str) -> str:
        """The name of a style, in small letters."""
        return self.names.get(style, style.lower())

    def level(self, style: str) -> int:
        """The level of heading that a style makes, by its name, its own word or the style that it is based on."""
        for _ in range(_BASES_MAX):
            found = _HEADING.fullmatch(self.name(style))
            if found:
                return int(found[1] or 1)
            if style in self.levels:
                return self.levels[style]
            style = self._based_on.get(style, "")
        return 0


def _level(value: str) -> int:
    """The level of a heading, from 1; 0 for text."""
    return int(value) + 1 if value in _OUTLINE_LEVELS else 0


@define
class _Properties(_Xml):
    """Title, author and dates of a file."""

    found: dict[str, str] = field(factory=dict)
    _name: str = ""

    def begin(self, name: str, values: Mapping[str, str]) -> None:
        """Note which property begins."""
        self._name = name

    def end(self, name: str) -> None:
        """Note that it ends."""
        self._name = ""

    def text(self, text: str) -> None:
        """Keep its beginning."""
        if self._name in ("title", "creator", "created", "modified"):
            self.found[self._name] = (self.found.get(self._name, "") + text)[:_PROPERTY_CHARS_MAX]

    def get(self, name: str) -> str:
        """A property on one line; empty without it."""
        return " ".join(self.found.get(name, "").split())


@define
class _WordTable(Grid):
    """A table that is open; it `is_named` if its first row is said to be repeated on every page."""

    is_named: bool = False

    def named(self) -> bool:
        """Return True if its first row names the columns."""
        first = self.rows[0] if self.rows else []
        return self.is_named or (len(first) >= _COLUMNS_NAMED_MIN and is_header(first))


@define
class _Body(_Xml):
    """The blocks of a file's text."""

    limits: ReadingLimits
    styles: _Styles
    blocks: Blocks = field(init=False)
    _pieces: list[str] = field(factory=list)
    _style: str = ""
    _level: int = 0
    _depth: int = -1
    _is_text: bool = False
    _unsaid: int = 0
    _tables: list[_WordTable] = field(factory=list)
    _deeper: int = 0

    def __attrs_post_init__(self) -> None:
        self.blocks = Blocks(self.limits)

    def begin(self, name: str, values: Mapping[str, str]) -> None:
        """Note what begins: a paragraph and what it is, a run of text, a table, a row, a cell."""
        if self._unsaid or name in _UNSAID:
            self._unsaid += name in _UNSAID
            return
        value = values.get("val", "")
        match name:
            case "t":
                self._is_text = True
            case "p":
                self._end_paragraph()  # of which this one is a part: a box with text
            case "pStyle":
                self._style = value[:_STYLE_CHARS_MAX]
            case "outlineLvl":
                self._level = _level(value)
            case "ilvl":
                self._depth = min(int(value), _LIST_DEPTH_MAX) if value in _OUTLINE_LEVELS else 0
            case "numId" if value != "0":
                self._depth = max(self._depth, 0)
            case "numId":
                self._depth = -1
            case "docPr" if values.get("descr"):
                self._pieces.append(values["descr"])
            case "tbl" | "tr" | "tc" | "gridSpan" | "tblHeader":
                self._begin_in_table(name, value)
            case _ if name in _BREAKS:
                self._pieces.append(_BREAKS[name])

    def _begin_in_table(self, name: str, value: str) -> None:
        if name == "tbl":
            self._end_paragraph()
            if len(self._tables) < _TABLE_DEPTH_MAX:
                self._tables.append(_WordTable())
            else:
                self._deeper += 1
        elif self._tables and not self._deeper:
            table = self._tables[-1]
            match name:
                case "tr":
                    table.begin_row()
                case "tc":
                    table.begin_cell()
                case "gridSpan":
                    table.widen(value)
                case _:
                    table.is_named |= len(table.rows) == 1

    def end(self, name: str) -> None:
        """Put what ends where it belongs."""
        if name in _UNSAID:
            self._unsaid -= 1
        elif not self._unsaid:
            match name:
                case "t":
                    self._is_text = False
                case "p":
                    self._end_paragraph()
                case "tc" if self._tables and not self._deeper:
                    self._tables[-1].end_cell()
                case "tbl" if self._deeper:
                    self._deeper -= 1
                case "tbl":
                    self._end_table(self._tables.pop())

    def text(self, text: str) -> None:
        """Keep the text of a run."""
        if self._is_text and not self._unsaid:
            self._pieces.append(text)

    def _end_table(self, table: _WordTable) -> None:
        self.blocks.gap()
        for line in table.lines(named=table.named()):
            self._put(line, "row")

    def _end_paragraph(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        style, name = self._style, self.styles.name(self._style)
        level = self._level or self.styles.level(style)
        depth = max(self._depth, 0) if self._depth >= 0 or name.startswith(_LIST_STYLES) else -1
        self._style, self._level, self._depth = "", 0, -1
        if not text.strip() or name.startswith("toc "):
            return
        if level and not self._tables:
            self.blocks.heading(level, text)
        elif depth >= 0:
            self._put(squeezed(text), "item", "  " * depth + "- ")
        else:
            self._put(text, "paragraph")

    def _put(self, text: str, kind: str, mark: str = "") -> None:
        """Put a block into the cell that is open, else into the file's text."""
        if self._tables and self._tables[-1].cell is not None:
            self._tables[-1].cell.append(squeezed(text))
        elif not self._tables:
            self.blocks.put(text, kind, mark)
