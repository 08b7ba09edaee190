"""HTML: the text that a reader would see, of mails as plain text, of pages by headings, lists and tables.

The standard library's parser looks for the end of a broken tag once for each of them, to the end of the text; this one
takes time that grows with the length of what it reads.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from attrs import define, field

from memory_engine.core.lazy import regex
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, check_limit
from memory_engine.views.documents.readers.mime import as_text
from memory_engine.views.documents.readers.outline import Blocks, squeezed
from memory_engine.views.documents.readers.tables import Grid
from memory_engine.views.documents.readers.text import BYTE_ORDER_MARKS, as_date, decoded, unescaped

_HIDDEN = frozenset({"head", "script", "style", "template", "title"})
_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p "
    "pre section table td th tr ul".split()
)
_QUOTES = frozenset({"blockquote"})


def html_text(html: str) -> str:
    """The visible text; quoted blocks are marked with `> `, as in a mail of plain text."""
    parts: list[str] = []
    hidden: list[str] = []
    quoted = 0
    for text, tag, ends, _ in _tags(html):
        if not hidden and text:
            parts.append(unescaped(" ".join(text.split("\n"))))
        if tag in _HIDDEN:
            hidden = _hidden_after(hidden, tag, ends=ends)
        if tag in _QUOTES:
            quoted = max(0, quoted - 1) if ends else quoted + 1
        if tag in _BLOCKS and not hidden:
            parts.append("\n" + "> " * bool(quoted))
    lines = (re.sub(r"[^\S\n]+", " ", line).strip() for line in "".join(parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _hidden_after(hidden: list[str], tag: str, *, ends: bool) -> list[str]:
    """The hidden elements that are open, each once: a tag that ends closes all that stand within it."""
    if ends:
        return hidden[: hidden.index(tag)] if tag in hidden else hidden
    return hidden if tag in hidden else [*hidden, tag]


def read_html(content: bytes, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Loaded:
    """A page: the text of its `main`, else of its articles, else of all but navigation, head and foot.

    Its title is that of its first heading where the `title` begins or ends so, else the `title`, else the file's name.
    Raises `Unreadable` for one that passes a limit.
    """
    html = _page_text(content)
    check_limit(html.count("<"), limits, "markup_tags", "tags or more")
    page = _read_page(html, limits)
    title = page.title() or PurePath(path).stem
    sections = page.blocks.outline.sections(title)
    if not page.has_words() and (rest := html_text(html)):  # all of it is in what is left out elsewhere
        sections = (DocumentSection(text=rest),)
    return Loaded(
        id=path,
        title=title,
        format="html",
        sections=sections,
        source=path,
        author=next(filter(None, (page.described.get(name, "") for name in _AUTHORS)), ""),
        date=next(filter(None, (as_date(page.described.get(name, "")) for name in _DATES)), None),
    )


def _read_page(html: str, limits: ReadingLimits) -> "_Page":
    for focus, begins in _FOCUSES.items():
        if begins.search(html) and (page := _Page(limits, focus).read(html)).has_words():
            return page
    return _Page(limits).read(html)


_FOCUSES = {"main": regex(r"<(?i:main)[\s>]"), "article": regex(r"<(?i:article)[\s>]")}
_AUTHORS = ("author", "article:author", "dc.creator", "dcterms.creator")
_DATES = ("article:modified_time", "dcterms.modified", "article:published_time", "date", "dc.date", "dcterms.created")
_CHARSET = regex(rb"(?i)(?:charset|encoding)\s*=\s*[\"']?([a-z][\w.:-]{0,39})")
_CHARSET_BYTES = 4_096


def _page_text(content: bytes) -> str:
    """The text of a page: by its mark, as UTF-8 where it is that, else in the encoding that the page names."""
    named = _CHARSET.search(content, 0, _CHARSET_BYTES)
    if named is None or content.startswith(tuple(mark for mark, _ in BYTE_ORDER_MARKS)):
        return decoded(content)
    try:
        if not content.isascii():
            content.decode()
            return decoded(content)
    except UnicodeDecodeError:
        pass
    text = as_text(content, named[1].decode())
    return decoded(text.encode("utf-8", "replace"))


_DROPPED = frozenset(
    "audio button canvas datalist iframe nav noscript object script select style svg template textarea video".split()
)
_AROUND = frozenset({"aside", "footer", "header"})
"""Left out where they are around the page, not within its main part or an article."""
_NO_ROLES = frozenset({"navigation", "search", "menu", "menubar", "banner", "contentinfo"})
_ENDLESS = frozenset(
    "area base body br col dd dt embed hr html img input li link meta p param source tbody td tfoot th thead tr track "
    "wbr".split()
)
"""Elements whose end may be missing: an attribute that hides one hides nothing else."""
_HEADINGS: Mapping[str, int] = {f"h{level}": level for level in range(1, 7)}
_SPACES = frozenset({"div", "br", "hr", "center"})
_ATTRIBUTES = regex(r"([a-zA-Z][\w:-]{0,40})(?:\s{0,9}=\s{0,9}(\"[^\"]*\"|'[^']*'|[^\s\"'>]+))?")
_ATTRIBUTE_CHARS = 2_000
"""Of a longer tag the attributes at its beginning are read."""
_INVISIBLE = regex(r"(?i)display\s{0,9}:\s{0,9}none|visibility\s{0,9}:\s{0,9}hidden")
_LIST_DEPTH_MAX = 8
_TABLE_DEPTH_MAX = 50
_TITLE_CHARS_MAX = 200


def _attributes(tag: str) -> dict[str, str]:
    name_end = len(tag.split(None, 1)[0])
    found = _ATTRIBUTES.finditer(tag, name_end, min(len(tag), name_end + _ATTRIBUTE_CHARS))
    return {one[1].lower(): unescaped((one[2] or "").strip("\"'")) for one in found}


@define
class _Element:
    """An element by its tag, and how many of that tag are open within it; 0: it is not open."""

    tag: str = ""
    depth: int = 0

    def begin(self, tag: str) -> None:
        self.tag, self.depth = tag, 1

    def see(self, tag: str, *, ends: bool) -> None:
        if tag == self.tag and self.depth:
            self.depth += -1 if ends else 1


@define
class _PageTable(Grid):
    """A table of a page, which may be there for the layout only."""

    has_names: bool = False
    has_values: bool = False
    spans_rows: bool = False
    is_layout: bool = False

    def begin(self, tag: str, written: Mapping[str, str]) -> None:
        """Begin a cell, of a name or of a value."""
        self.begin_cell()
        self.widen(written.get("colspan", ""))
        if len(self.rows) == 1:
            self.has_names |= tag == "th"
            self.has_values |= tag == "td"
        self.spans_rows |= written.get("rowspan", "1") != "1"

    def named(self) -> bool:
        """Return True if its first row names the columns. Where a cell reaches into later rows, their values move."""
        return self.has_names and not (self.has_values or self.spans_rows)


@define
class _Page:
    """A page as it is read, tag by tag. With a `focus`, only what is within elements of this tag is text."""

    limits: ReadingLimits
    focus: str = ""
    blocks: Blocks = field(init=False)
    described: dict[str, str] = field(factory=dict)
    _titles: list[str] = field(factory=list)
    _pieces: list[str] = field(factory=list)
    _heading: int = 0
    _mark: str = ""
    _lists: list[int] = field(factory=list)
    _grids: list[_PageTable] = field(factory=list)
    _hidden: _Element = field(factory=_Element)
    _within: _Element = field(factory=_Element)
    _is_title: bool = False
    _is_pre: bool = False

    def __attrs_post_init__(self) -> None:
        self.blocks = Blocks(self.limits)

    def read(self, html: str) -> "_Page":
        """Read a page, once."""
        for text, tag, ends, whole in _tags(html):
            if text and self._is_title:
                self._titles.append(text)
            elif text and self._is_shown():
                self._pieces.append(unescaped(text if self._is_pre else text.replace("\n", " ")))
            if tag:
                self._tag(tag, whole, ends=ends)
        self._end_block()
        while self._grids:
            self._put_rows(self._grids.pop())
        return self

    def has_words(self) -> bool:
        """Return True if anything of it is text."""
        return self.blocks.has_words

    def title(self) -> str:
        """Its title: what a site puts around the first heading is left out."""
        said = " ".join(unescaped("".join(self._titles)).split())[:_TITLE_CHARS_MAX]
        first = self.blocks.outline.first_heading
        return first if first and (said.startswith(first) or said.endswith(first)) else said or first

    def _is_shown(self) -> bool:
        return not self._hidden.depth and (not self.focus or self._within.depth > 0)

    def _tag(self, tag: str, whole: str, *, ends: bool) -> None:
        self._is_title = False
        if self._hidden.depth:
            self._hidden.see(tag, ends=ends)
            return
        if tag == self.focus:
            self._end_block()
            if self._within.depth:
                self._within.see(tag, ends=ends)
            elif not ends:
                self._within.begin(tag)
        match tag:
            case "title":
                self._is_title = not ends and not self._titles
            case "meta":
                self._describe(_attributes(whole))
            case _ if not ends and self._hides(tag, whole):
                if not (tag == "svg" and whole.endswith("/>")):
                    self._hidden.begin(tag)
            case _ if self._is_shown():
                self._structure(tag, whole, ends=ends)

    def _describe(self, written: Mapping[str, str]) -> None:
        name = (written.get("name") or written.get("property") or "").lower()
        if name in _AUTHORS or name in _DATES:
            self.described.setdefault(name, " ".join(written.get("content", "").split()))

    def _hides(self, tag: str, whole: str) -> bool:
        if tag in _DROPPED or (tag in _AROUND and not self.focus):
            return True
        low = whole.lower()
        if tag in _ENDLESS or not ("hidden" in low or "role" in low or "none" in low):
            return False
        written = _attributes(whole)
        return (
            "hidden" in written
            or written.get("aria-hidden") == "true"
            or written.get("role", "").lower() in _NO_ROLES
            or _INVISIBLE.search(written.get("style", "")) is not None
        )

    def _structure(self, tag: str, whole: str, *, ends: bool) -> None:
        """Take a tag for what it makes of the text after it."""
        match tag:
            case "br":
                self._pieces.append("\n")
            case "img":
                self._pieces.append(_attributes(whole).get("alt", ""))
            case "pre":
                self._end_block()
                self._is_pre = not ends
            case "ul" | "ol" | "dl" | "menu":
                self._list(tag, ends=ends)
            case "li" | "dd" | "dt":
                self._end_block()
                self._mark = "" if ends else self._item(tag)
            case "table" | "caption" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th":
                self._end_block()
                self._table(tag, whole, ends=ends)
            case _ if tag in _HEADINGS:
                self._end_block()
                self._dissolve()
                self._heading = 0 if ends else _HEADINGS[tag]
            case _ if self._heading and tag in _SPACES:
                self._pieces.append(" ")
            case _ if tag in _BLOCKS:
                self._end_block()
                self._heading = 0

    def _list(self, tag: str, *, ends: bool) -> None:
        self._end_block()
        self._mark = ""
        if not ends:
            self._lists.append(0 if tag == "ol" else -1)
        elif self._lists:
            self._lists.pop()

    def _item(self, tag: str) -> str:
        """The mark before an item: a number in a numbered list."""
        indent = "  " * (min(len(self._lists), _LIST_DEPTH_MAX) - 1)
        if tag != "li":
            return indent + "  " * (tag == "dd")
        if not self._lists or self._lists[-1] < 0:
            return indent + "- "
        self._lists[-1] += 1
        return f"{indent}{self._lists[-1]}. "

    def _table(self, tag: str, whole: str, *, ends: bool) -> None:
        if tag == "table" and not ends and len(self._grids) < _TABLE_DEPTH_MAX:
            self._dissolve()
            self._grids.append(_PageTable())
        elif tag == "table" and ends and self._grids:
            self._put_rows(self._grids.pop())
        grid = self._grids[-1] if self._grids else None
        if grid is None or grid.is_layout:
            return
        if tag == "tr":
            grid.begin_row()
        elif tag in ("td", "th") and ends:
            grid.end_cell()
        elif tag in ("td", "th"):
            grid.begin(tag, _attributes(whole))

    def _dissolve(self) -> None:
        """Take the table that is open for one that lays the page out: what its cells hold are blocks of their own."""
        if self._grids and not self._grids[-1].is_layout:
            self._put_rows(self._grids[-1])
            self._grids[-1] = _PageTable(is_layout=True)

    def _put_rows(self, grid: _PageTable) -> None:
        grid.end_cell()
        self.blocks.gap()
        for line in grid.lines(named=grid.named()):
            self.blocks.put(line, "row")

    def _end_block(self) -> None:
        """Put the text since the last block where it belongs."""
        text = "".join(self._pieces)
        self._pieces.clear()
        if not text.strip():
            return
        grid = self._grids[-1] if self._grids else None
        if self._heading:
            self.blocks.heading(self._heading, text)
        elif grid is not None and grid.cell is not None:
            grid.cell.append(squeezed(text))
        elif self._is_pre:
            self.blocks.put(text.strip("\n"), "pre")
        else:
            self.blocks.put(text, "item" if self._lists or self._mark else "paragraph", self._mark)
        self._mark = "  " * min(len(self._lists), _LIST_DEPTH_MAX)


_TAG_BEGINS = regex(r"<(?:/?[a-zA-Z]|[!?])")
_TAG_NAME = regex(r"/?([a-zA-Z][^\s/>]{0,40})")
_TAG_GOES_ON = regex(r"[^>\"']*")
_RAW = frozenset({"script", "style"})


def _tags(html: str) -> Iterator[tuple[str, str, bool, str]]:
    """The text before each tag, the tag's lower name, whether it ends an element, and all of it.

    Last the text after them all.
    """
    ahead, is_xml = _Ahead(html), html.startswith("<?xml")
    at = 0
    while found := _TAG_BEGINS.search(html, at):
        named = _TAG_NAME.match(html, found.start() + 1)
        end = _end_of_tag(html, found.end(), ahead) if named else _end_of_comment(html, found.start(), ahead)
        if end < 0:  # it never ends: what looks like a tag is text
            break
        text, tag, ends = html[at : found.start()], (named[1].lower() if named else ""), html[found.start() + 1] == "/"
        whole = html[found.start() : end]
        yield text, tag, ends, whole
        at = end
        if tag in _RAW and not ends and not (is_xml and whole.endswith("/>")):
            closing = ahead.find(f"</{tag}", at)
            at = closing if closing >= 0 else len(html)
    yield html[at:], "", False, ""


def _end_of_tag(html: str, at: int, ahead: "_Ahead") -> int:
    """After the `>` that ends a tag: one in quotes does not, unless the quote never ends. -1 without one."""
    while found := _TAG_GOES_ON.match(html, at):
        at = found.end()
        if at == len(html):
            return -1
        if html[at] == ">":
            return at + 1
        closing = ahead.find(html[at], at + 1)
        at = (closing if closing >= 0 else at) + 1
    return -1


def _end_of_comment(html: str, at: int, ahead: "_Ahead") -> int:
    """After a comment, a declaration or an instruction. -1 where it never ends."""
    mark = "-->" if html.startswith("<!--", at) else "]]>" if html.startswith("<![", at) else ">"
    end = ahead.find(mark, at + 2)
    return end + len(mark) if end >= 0 else -1


class _Ahead:
    """Looks for texts further on. One that was not found before is not looked for again, nor is one passed over."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._low = ""
        self._next: dict[str, int] = {}

    def find(self, wanted: str, at: int) -> int:
        known = self._next.get(wanted, 0)
        if known < 0 or known >= at > 0:
            return known
        self._low = self._low or _lower_tags(self._text)
        self._next[wanted] = self._low.find(wanted, at)
        return self._next[wanted]


def _lower_tags(text: str) -> str:
    """The text with small Latin letters, each character in its place."""
    return text.translate(_SMALL)


_SMALL = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
