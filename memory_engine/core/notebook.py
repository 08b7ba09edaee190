"""Values as notebooks show them: one plain table each, escaped, and short however much there is."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

ROWS_MAX = 50
TEXT_MAX = 200
"""Characters of a cell."""


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table of the first rows; the last one says that there are more."""
    waiting = iter(rows)
    shown = [_table_row(row) for row in islice(waiting, ROWS_MAX)]
    if (more := sum(1 for _ in waiting)) > 0:
        shown.append(f'<tr><td colspan="{len(columns)}">… and {more:,} more</td></tr>')
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    return (
        f'<table><caption style="text-align: left">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(shown)}</tbody></table>"
    )


def _table_row(values: Sequence[object]) -> str:
    return f"<tr>{''.join(map(_cell, values))}</tr>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    cut = text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
    return f'<td style="text-align: left; white-space: pre-wrap">{escape(cut)}</td>'
