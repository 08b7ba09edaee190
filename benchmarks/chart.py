"""The chart of the table: an SVG written by hand, readable on light and on dark pages."""

import math
from collections.abc import Sequence

from attrs import frozen

from benchmarks.figures import Figure
from memory_engine.files import svg

WIDTH, LEFT, RIGHT, ROW = 960, 450, 70, 26
STYLE = ".limit { stroke-dasharray: 4 3; }"
COLOURS = {
    ".limit": ("stroke: #57606a;", "stroke: #9da7b3;"),
    ".ours": ("fill: #0969da;", "fill: #4493f8;"),
    ".other": ("fill: #8c959f;", "fill: #768390;"),
    ".missed": ("fill: #cf222e;", "fill: #f85149;"),
}


@frozen
class Mark:
    """One row of a panel: a name, the position of its mark (0 to 1), the words next to it, and its class."""

    name: str
    share: float
    label: str
    kind: str


def draw(figures: Sequence[Figure]) -> str:
    """Two panels: what one append takes here and elsewhere, and how much of each bar is used up."""
    appends, bars = _appends(figures), _bars(figures)
    first, first_end = _dots(appends, 20)
    second, end = _bar_rows(bars, first_end + 30)
    label = "Benchmark results, as in the table"
    return svg.page(label, (WIDTH, end + 10), [*first, *second], colours=COLOURS, style=STYLE)


def _appends(figures: Sequence[Figure]) -> list[tuple[str, float, str]]:
    """(name, microseconds, class) of every side of `dispatch` and `durability`, the fastest first."""
    found: dict[str, tuple[float, str]] = {}
    for figure in figures:
        if figure.value is None:
            continue
        if figure.bench == "dispatch":
            name = figure.case.partition(",")[0]
            found.setdefault(f"memory_engine, {name}", (figure.value, "ours"))
            if figure.reference is not None and figure.reference.value is not None:
                found.setdefault(figure.reference.name.partition(":")[0], (figure.reference.value, "other"))
        elif figure.bench == "durability":
            found["memory_engine, synced with every commit"] = (figure.value, "ours")
    rows = [(name, value, kind) for name, (value, kind) in found.items()]
    return sorted(rows, key=lambda row: row[1])


def _dots(rows: Sequence[tuple[str, float, str]], top: int) -> tuple[list[str], int]:
    """A dot for each on a logarithmic scale."""
    if not rows:
        return [], top
    ticks = _ticks(min(value for _, value, _ in rows), max(value for _, value, _ in rows))
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    parts = _heading("Appending one message: median, microseconds (logarithmic; less is better)", top)
    top += 24
    bottom = top + ROW * len(rows)
    for tick in ticks:
        x = _x((math.log10(tick) - low) / (high - low))
        parts.append(svg.line(x, top, x, bottom))
        parts.append(svg.text((x, bottom + 16), f"{tick:,}", "quiet", anchor="middle"))
    for number, (name, value, kind) in enumerate(rows):
        y = top + ROW * number + ROW // 2
        x = _x((math.log10(value) - low) / (high - low))
        parts.append(_name(name, y))
        parts.append(svg.dot(x, y, 6, kind))
        parts.append(svg.text((x + 12, y + 4), f"{value:,.0f}", "quiet"))
    return parts, bottom + 24


def _ticks(least: float, most: float) -> list[int]:
    """1, 2, 5, 10 and so on, from the last below all values to the first above them."""
    steps = [step * 10**power for power in range(9) for step in (1, 2, 5)]
    first = max(n for n, step in enumerate(steps) if step <= max(least, 1))
    last = min(n for n, step in enumerate(steps) if step > most)
    return steps[first : last + 1]


def _bars(figures: Sequence[Figure]) -> list[Mark]:
    """Each figure that has a bar: the share of what is allowed that it takes."""
    marks: list[Mark] = []
    for figure in figures:
        bar = figure.bar
        compared = figure.value if bar is not None and bar.of == "value" else figure.ratio
        if bar is None or not bar.limit or compared is None:
            continue
        share = compared / bar.limit if bar.sign == "<=" else bar.limit / compared
        kind = "ours" if share <= 1 else "missed"
        name = f"{figure.bench}: {figure.case}"
        marks.append(Mark(name if len(name) <= 62 else name[:61] + "…", share, f"{share:.0%}", kind))
    return marks


def _bar_rows(marks: Sequence[Mark], top: int) -> tuple[list[str], int]:
    parts = _heading("Each bar, and how much of what it allows is taken (left of the line: reached)", top)
    top += 24
    full = 1.5
    bottom = top + ROW * len(marks)
    for number, mark in enumerate(marks):
        y = top + ROW * number
        width = round(_x(max(0.0, min(mark.share, full)) / full) - LEFT, 1)
        parts += [
            _name(mark.name, y + ROW // 2),
            svg.bar(LEFT, y + 5, width, ROW - 10, mark.kind),
            svg.text((round(LEFT + width + 8, 1), y + ROW // 2 + 4), mark.label, "quiet"),
        ]
    x = _x(1 / full)
    parts.append(svg.line(x, top, x, bottom, "limit"))
    return parts, bottom + 8


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _heading(text: str, top: int) -> list[str]:
    return [svg.text((16, top + 10), text, "title")]


def _name(name: str, y: int) -> str:
    return svg.text((LEFT - 12, y + 4), name, anchor="end")
