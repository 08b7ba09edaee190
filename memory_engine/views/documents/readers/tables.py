"""Tables: CSV files, and rows of other documents, each row a line in which every value has its column's name.

A passage that holds a few rows then says what they mean, wherever the table is cut, and a new row moves no other.
"""

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain, islice
from pathlib import PurePath

from attrs import define, field

from memory_engine.core.lazy import regex
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.views.documents.readers.document import Loaded, Unreadable, check_limit
from memory_engine.views.documents.readers.outline import Blocks
from memory_engine.views.documents.readers.text import decoded

LABEL_CHARS_MAX = 120
SPAN_MAX, _SPAN_DIGITS_MAX = 100, 4
_SEPARATORS = ",;\t|"
_SAMPLE_CHARS, _SAMPLE_ROWS = 64 * 1024, 20
_NUMBER = regex(r"[-+(]?[$€£¥]?[\d.,:/ -]*\d[\d.,:/ -]*[%€£$)]?$")
"""A number, an amount, a date or a time: such a value is data, not the name of a column."""
_CELL_CHARS_LOOKED_AT = 40


def read_csv(content: bytes, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Loaded:
    """A file of rows, apart by commas, semicolons, tabs or bars. Raises `Unreadable`, naming the line."""
    text = decoded(content)
    separator = _separator(text)
    check_limit(text.count(separator) + text.count("\n"), limits, "table_cells", "cells or more")
    rows = csv.reader(StringIO(text, newline="\n"), delimiter=separator)
    blocks = Blocks(limits)
    try:
        first = next((row for row in rows if any(map(str.strip, row))), [])
        is_named = is_header(first)
        for line in labelled(chain([first], rows)) if is_named else map(row_line, chain([first], rows)):
            blocks.put(line, "row")
    except csv.Error as error:
        raise Unreadable(f"it cannot be read as a table: {error}", f"line {rows.line_num}") from None
    title = PurePath(path).stem
    return Loaded(id=path, title=title, format="csv", sections=blocks.outline.sections(title), source=path)


@define
class Grid:
    """A table of a page that is open: its rows so far, and the texts of the cell that is open."""

    rows: list[list[str]] = field(factory=list)
    cell: list[str] | None = None
    _span: int = 1

    def begin_row(self) -> None:
        """Begin a row, which ends the one before."""
        self.end_cell()
        if not self.rows or self.rows[-1]:
            self.rows.append([])

    def begin_cell(self) -> None:
        """Begin a cell, which ends the one before."""
        self.end_cell()
        if not self.rows:
            self.rows.append([])
        self.cell = []

    def widen(self, span: str) -> None:
        """Let the cell that is open stand in so many columns."""
        wide = span.isdecimal() and len(span) <= _SPAN_DIGITS_MAX
        self._span = min(int(span), SPAN_MAX) if wide else 1

    def end_cell(self) -> None:
        """Add the cell that is open to its row."""
        if self.cell is not None:
            self.rows[-1] += ["\n".join(self.cell), *[""] * (self._span - 1)]
        self.cell, self._span = None, 1

    def lines(self, *, named: bool) -> Iterator[str]:
        """Its rows: with the names of columns where the first row is `named`, else between bars.

        A table of one column only puts a frame around text: its lines.
        """
        rows = [row for row in self.rows if any(row)]
        if max(map(len, rows), default=0) <= 1:
            return (line for row in rows for line in row[0].split("\n"))
        return labelled(iter(rows)) if named else map(row_line, rows)


def labelled(rows: Iterator[Sequence[str]]) -> Iterator[str]:
    """A line for each row after the first, its values under the names in that; without others, the first."""
    names = next(rows)
    labels = [label or f"column {n}" for n, label in enumerate(map(_column_label, names), 1)]
    row = next(rows, None)
    if row is None:
        yield row_line(names)
    while row is not None:
        yield row_line(row, labels)
        row = next(rows, None)


def row_line(row: Sequence[str], labels: Sequence[str] = ()) -> str:
    """A row as a line: `name: value; …`, empty values left out; without labels the values, between bars."""
    values = [" ".join(value.split()) for value in row]
    if not labels:
        return " | ".join(values) if any(values) else ""
    named = ((labels[n] if n < len(labels) else f"column {n + 1}", value) for n, value in enumerate(values) if value)
    return "; ".join(f"{label}: {value}" for label, value in named)


def is_header(row: Sequence[str]) -> bool:
    """Return True if a first row names columns: texts, each once, none of them a number or a date."""
    cells = [cell.strip() for cell in row if cell.strip()]
    looked = [cell[:_CELL_CHARS_LOOKED_AT] for cell in cells]
    return len(cells) > 1 and len(set(cells)) == len(cells) and not any(map(_NUMBER.match, looked))


def _column_label(cell: str) -> str:
    return " ".join(cell.split())[:LABEL_CHARS_MAX]


def _separator(text: str) -> str:
    """What parts the values: the sign by which the first rows have most columns, and equally many."""
    sample = text[:_SAMPLE_CHARS].split("\n")

    def fits(separator: str) -> tuple[bool, int]:
        try:
            counts = [len(row) for row in islice(csv.reader(sample, delimiter=separator), _SAMPLE_ROWS) if row]
        except csv.Error:
            return False, 0
        whole = counts[:-1] or counts  # the sample may end within a row
        return max(whole, default=0) > 1 and len(set(whole)) == 1, min(whole, default=0)

    return max(_SEPARATORS, key=fits)
