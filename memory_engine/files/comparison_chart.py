"""A comparison of compactors as an SVG chart: tokens kept against facts kept."""

from collections.abc import Sequence

from memory_engine.core.excerpts import counted
from memory_engine.files import svg
from memory_engine.files.comparison import CompactorScore, Comparison

WIDTH, HEIGHT = 760, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 40, 64, 60
KINDS = 6
"""Colours; with more compactors than colours, some share one."""
_STYLE = ".log { fill-opacity: 0.35; } .label { paint-order: stroke; stroke-width: 4px; }"
_COLOURS = {
    ".label": ("stroke: #ffffff;", "stroke: #0d1117;"),
    ".k0": ("fill: #0969da;", "fill: #4493f8;"),
    ".k1": ("fill: #bc4c00;", "fill: #db6d28;"),
    ".k2": ("fill: #1a7f37;", "fill: #3fb950;"),
    ".k3": ("fill: #8250df;", "fill: #a371f7;"),
    ".k4": ("fill: #bf3989;", "fill: #db61a2;"),
    ".k5": ("fill: #6e7781;", "fill: #8b949e;"),
}


def draw(comparison: Comparison) -> str:
    """A small dot for each log and a large one for all of them, in a colour for each compactor."""
    totals = [total for total in comparison.totals() if total.tokens_kept is not None]
    rows = [row for row in comparison.rows if row.tokens_kept is not None]
    most = max([0.1, *(_shares(row)[0] for row in (*rows, *totals))])
    right = next(tick / 10 for tick in range(1, 11) if tick / 10 >= min(most, 1.0))
    kinds = {total.compactor: f"k{n % KINDS}" for n, total in enumerate(totals)}
    what = (
        "Facts that the last context still says, against tokens that stand for what was compacted. "
        "Large dots: all logs. Up and left is better."
    )
    marks = [
        svg.text((16, 28), f"What compactors keep of {counted(len({row.log for row in rows}), 'log')}", "title"),
        svg.text((16, 48), what, "quiet"),
        *_grid(right),
        *(_dot(row, right, f"log {kinds[row.compactor]}", 4) for row in rows),
        *(_dot(total, right, kinds[total.compactor], 8) for total in totals),
        *_labels(totals, right),
    ]
    label = "Tokens kept against facts kept, by compactor"
    return svg.page(label, (WIDTH, HEIGHT), marks, colours=_COLOURS, style=_STYLE)


def _shares(row: CompactorScore) -> tuple[float, float]:
    facts = row.facts_kept
    return min(row.tokens_kept or 0.0, 1.0), 1.0 if facts is None else facts


def _chart_point(row: CompactorScore, right: float) -> tuple[float, float]:
    tokens, facts = _shares(row)
    x = LEFT + tokens / right * (WIDTH - LEFT - RIGHT)
    y = TOP + (1 - facts) * (HEIGHT - TOP - BOTTOM)
    return round(x, 1), round(y, 1)


def _grid(right: float) -> list[str]:
    """Lines at every fifth of either scale, with their shares."""
    parts = []
    last, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in range(6):
        x = round(LEFT + tick / 5 * (last - LEFT), 1)
        y = round(TOP + tick / 5 * (bottom - TOP), 1)
        parts += [
            svg.line(x, TOP, x, bottom),
            svg.text((x, bottom + 18), f"{right * tick / 5:.0%}", "quiet", anchor="middle"),
            svg.line(LEFT, y, last, y),
            svg.text((LEFT - 8, y + 4), f"{1 - tick / 5:.0%}", "quiet", anchor="end"),
        ]
    parts += [
        svg.text(((LEFT + last) / 2, bottom + 40), "tokens kept", "quiet", anchor="middle"),
        svg.text((16, (TOP + bottom) / 2), "facts kept", "quiet", anchor="middle", turned=True),
    ]
    return parts


def _dot(row: CompactorScore, right: float, kind: str, radius: int) -> str:
    x, y = _chart_point(row, right)
    return svg.dot(x, y, radius, kind, f"{row.log or 'all logs'}, {row.compactor}: {_point_label(row)}")


def _point_label(row: CompactorScore) -> str:
    tokens, facts = _shares(row)
    return f"{tokens:.0%} of tokens, {facts:.0%} of facts"


def _labels(totals: Sequence[CompactorScore], right: float) -> list[str]:
    """The compactors' names next to their large dots, none over another."""
    parts: list[str] = []
    lowest = -1000.0
    for total in sorted(totals, key=lambda total: _chart_point(total, right)[1]):
        x, y = _chart_point(total, right)
        lowest = max(y + 4, lowest + 18)
        anchor, at = ("start", x + 14) if x < WIDTH * 0.65 else ("end", x - 14)
        parts.append(svg.text((at, lowest), f"{total.compactor}: {_point_label(total)}", "label", anchor=anchor))
    return parts
