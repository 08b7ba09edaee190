"""Reports: a result is declared once, as lines of styled text, and drawn by `print()` or by a command.

A line is text and its styles: the command line prints them in colour, `print()` in plain, and cut short. The JSON form
of a report is that of its value (`core.json_form`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from memory_engine.core.excerpts import columns, escaped, number, one_line, padded
from memory_engine.core.json_form import JsonForm

T = TypeVar("T")
Line = Sequence[tuple[str, str]]
"""Pieces of text, escaped already, each with its style: `bold`, `red`, … or `""`."""
WIDTH = 120
"""Columns of a line that `print()` shows."""
LINES_MAX = 40
"""Lines that `print()` shows of a result; its `as_data()` has all of it."""


def line(text: str, style: str = "") -> Line:
    """A line in one style, with its control characters made harmless."""
    return ((escaped(text), style),)


def spaced(parts: Sequence[tuple[str, str]]) -> Line:
    """Those of the pieces that say something, with two blanks between them."""
    said = [part for part in parts if part[0]]
    return [piece for n, part in enumerate(said) for piece in ((("  ", ""), part) if n else (part,))]


def plain(lines: Iterable[Line], lines_max: int = LINES_MAX) -> str:
    """The first lines without their styles, each cut to `WIDTH`; a last one says that there are more."""
    waiting = iter(lines)
    shown = [one_line_of(each) for each in islice(waiting, lines_max)]
    if next(waiting, None) is not None:
        shown.append("…")
    return "\n".join(shown)


def one_line_of(pieces: Line) -> str:
    """The text of a line, cut to `WIDTH`, with its indentation."""
    text = "".join(piece for piece, _ in pieces)
    said = text.lstrip(" ")
    indent = text[: len(text) - len(said)]
    return (indent + one_line(said, max(1, WIDTH - len(indent)))).rstrip() if columns(text) > WIDTH else text.rstrip()


class Column(msgspec.Struct, frozen=True):
    """A column of a table. With a `least` width it may shrink to that where there is little room.

    The texts of one that is `cut` never take more than a line.
    """

    title: str
    right: bool = False
    least: int = 0
    cut: bool = False


def table_lines(heads: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[Line]:
    """Rows under titles. With a `width`, cells that may shrink are cut so that every line fits.

    Where even that is too wide, each row takes several lines, with a title before each cell.
    """
    cells = [[one_line(cell, 4096) for cell in row] for row in rows]
    widths = _widths(heads, cells, width)
    if width is not None and _width_of(widths) > width:
        for row in cells:
            yield from _stacked(heads, row, width)
        return
    titles = [padded(head.title, room, right=head.right) for head, room in zip(heads, widths, strict=True)]
    yield (("  ".join(titles).rstrip(), "bold"),)
    for row in cells:
        fitted = [
            padded(one_line(cell, room), room, right=head.right)
            for cell, head, room in zip(row, heads, widths, strict=True)
        ]
        yield (("  ".join(fitted).rstrip(), ""),)


def _widths(heads: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None) -> list[int]:
    widths = [max(columns(head.title), *(columns(row[n]) for row in cells), 0) for n, head in enumerate(heads)]
    over = _width_of(widths) - width if width is not None else 0
    for _ in range(over):
        wide = [n for n, head in enumerate(heads) if head.least and widths[n] > head.least]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _width_of(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _stacked(heads: Sequence[Column], row: Sequence[str], width: int) -> Iterator[Line]:
    """A row on lines of at most `width` columns: its first cell alone, then as many as fit on each."""
    first, *others = [one_line(f"{head.title} {cell}", width - 2) for head, cell in zip(heads, row, strict=True)]
    yield ((first, "bold"),)
    while others:
        said = others.pop(0)
        while others and columns(said) + 2 + columns(others[0]) <= width - 2:
            said += f"  {others.pop(0)}"
        yield ((f"  {said}".rstrip(), ""),)


def first_lines(
    some: Sequence[T], most: int, of_one: Callable[[T], Line], rest: str = "  … and {} more; --json lists them"
) -> Iterator[Line]:
    """A line for each of the first `most`, and one that says how many more there are, in place of the braces."""
    yield from map(of_one, some[:most])
    if len(some) > most:
        yield line(rest.format(number(len(some) - most)))


# ---- reports


class Paper(msgspec.Struct, frozen=True):
    """What a report is drawn on, by default what `print()` shows.

    `width` is that of a line, in columns, and `room` that of a table (`None`: cells are not cut). A command lists more
    than `print()` does, and its option `--json` gives all of it.
    """

    width: int = WIDTH
    room: int | None = WIDTH
    of_command: bool = False


PRINTED = Paper()


class Drawable(JsonForm):
    """A value that is a report: its fields are its JSON, and it draws itself as lines."""

    __slots__ = ()

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """Its lines, from the top."""
        raise NotImplementedError

    def __str__(self) -> str:
        return plain(self.drawn(PRINTED))


Part = Line | Callable[[Paper], Iterable[Line]]
"""A line, or what draws some."""


def table_of(heads: Sequence[Column], rows: Sequence[Sequence[str]], none: str = "") -> Part:
    """A table; without a row, the text in its place, if any."""

    def drawn(paper: Paper) -> Iterator[Line]:
        cells = [
            [one_line(cell, paper.width) if head.cut else cell for head, cell in zip(heads, row, strict=True)]
            for row in rows
        ]
        if rows:
            yield from table_lines(heads, cells, paper.room)
        elif none:
            yield line(none)

    return drawn


class Printout(msgspec.Struct, frozen=True):
    """A report that a command makes: the value that `--json` prints (or a function of it), and the parts for people.

    `warnings` go to standard error. `exit_code` is that of the command.
    """

    data: object
    parts: Iterable[Part] = ()
    exit_code: int = 0
    warnings: Sequence[str] = ()

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """Its lines, from the top."""
        for part in self.parts:
            if callable(part):
                yield from part(paper)
            else:
                yield part
