"""The chart beside the table: an SVG written by hand, readable on light and on dark pages."""

import math
from collections.abc import Sequence
from html import escape

from attrs import frozen

from benchmarks.figures import Figure

WIDTH, LEFT, RIGHT, ROW = 960, 450, 70, 26
STYLE = """
  svg { color-scheme: light dark; }
  text { font-size: 13px; font-family: system-ui, "Segoe UI", sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 15px; }
  .quiet { fill: #57606a; font-size: 12px; }
  .page { fill: #ffffff; }
  .grid { stroke: #d0d7de; }
  .limit { stroke: #57606a; stroke-dasharray: 4 3; }
  .ours { fill: #0969da; }
  .other { fill: #8c959f; }
  .missed { fill: #cf222e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .quiet { fill: #9da7b3; }
    .page { fill: #0d1117; }
    .grid { stroke: #30363d; }
    .limit { stroke: #9da7b3; }
    .ours { fill: #4493f8; }
    .other { fill: #768390; }
    .missed { fill: #f85149; }
  }
"""


@frozen
class Mark:
    """One row of a panel: a name, how far its mark stands (0 to 1), the words beside it, and its class."""

    name: str
    share: float
    label: str
    kind: str


def draw(figures: Sequence[Figure]) -> str:
    """Two panels: what one append takes here and elsewhere, and how much of each bar is used up."""
    appends, bars = _appends(figures), _bars(figures)
    first, first_end = _dots(appends, 20)
    second, end = _bar_rows(bars, first_end + 30)
    height = end + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-label="Benchmark results, as in the table">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
            *first,
            *second,
            "</svg>",
            "",
        ]
    )


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
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="quiet" x="{x}" y="{bottom + 16}" text-anchor="middle">{tick:,}</text>')
    for number, (name, value, kind) in enumerate(rows):
        y = top + ROW * number + ROW // 2
        x = _x((math.log10(value) - low) / (high - low))
        parts.append(_name(name, y))
        parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="6"/>')
        parts.append(f'<text class="quiet" x="{x + 12}" y="{y + 4}">{value:,.0f}</text>')
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
        width = _x(max(0.0, min(mark.share, full)) / full) - LEFT
        place = f'x="{LEFT}" y="{y + 5}" width="{width:.1f}" height="{ROW - 10}"'
        after = f'x="{LEFT + width + 8:.1f}" y="{y + ROW // 2 + 4}"'
        parts += [
            _name(mark.name, y + ROW // 2),
            f'<rect class="{mark.kind}" {place} rx="2"/>',
            f'<text class="quiet" {after}>{mark.label}</text>',
        ]
    x = _x(1 / full)
    parts.append(f'<line class="limit" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>')
    return parts, bottom + 8


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _heading(text: str, top: int) -> list[str]:
    return [f'<text class="title" x="16" y="{top + 10}">{escape(text, quote=False)}</text>']


def _name(name: str, y: int) -> str:
    return f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(name, quote=False)}</text>'
