"""A chart of a comparison: tokens kept against facts kept, an SVG that is readable on light and on dark pages."""

from collections.abc import Sequence
from html import escape

from memory_engine.files.compare import Comparison, Kept

WIDTH, HEIGHT = 760, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 40, 64, 60
KINDS = 6
"""Colours; more compactors share them."""
_STYLE = """
  svg { color-scheme: light dark; }
  text { font-size: 13px; font-family: system-ui, "Segoe UI", sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 15px; }
  .quiet { fill: #57606a; font-size: 12px; }
  .page { fill: #ffffff; }
  .grid { stroke: #d0d7de; }
  .log { fill-opacity: 0.35; }
  .label { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
  .k0 { fill: #0969da; } .k1 { fill: #bc4c00; } .k2 { fill: #1a7f37; }
  .k3 { fill: #8250df; } .k4 { fill: #bf3989; } .k5 { fill: #6e7781; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .quiet { fill: #9da7b3; }
    .page { fill: #0d1117; }
    .label { stroke: #0d1117; }
    .grid { stroke: #30363d; }
    .k0 { fill: #4493f8; } .k1 { fill: #db6d28; } .k2 { fill: #3fb950; }
    .k3 { fill: #a371f7; } .k4 { fill: #db61a2; } .k5 { fill: #8b949e; }
  }
"""


def draw(comparison: Comparison) -> str:
    """A small dot for each log and a large one for all of them, in a colour for each compactor."""
    totals = [total for total in comparison.totals() if total.tokens_kept is not None]
    rows = [row for row in comparison.rows if row.tokens_kept is not None]
    most = max([0.1, *(_shares(row)[0] for row in (*rows, *totals))])
    right = next(tick / 10 for tick in range(1, 11) if tick / 10 >= min(most, 1.0))
    kinds = {total.compactor: f"k{n % KINDS}" for n, total in enumerate(totals)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-label="Tokens kept against facts kept, by compactor">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="title" x="16" y="28">What compactors keep of {_counted(len({r.log for r in rows}))}</text>',
        '<text class="quiet" x="16" y="48">Facts that the last context still says, against tokens that stand for what '
        "was compacted. Large dots: all logs. Up and left is better.</text>",
        *_grid(right),
        *(_dot(row, right, f"log {kinds[row.compactor]}", 4) for row in rows),
        *(_dot(total, right, kinds[total.compactor], 8) for total in totals),
        *_labels(totals, right),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _counted(logs: int) -> str:
    return f"{logs:,} log{'s' * (logs != 1)}"


def _shares(row: Kept) -> tuple[float, float]:
    facts = row.facts_kept
    return min(row.tokens_kept or 0.0, 1.0), 1.0 if facts is None else facts


def _place(row: Kept, right: float) -> tuple[float, float]:
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
            f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>',
            f'<text class="quiet" x="{x}" y="{bottom + 18}" text-anchor="middle">{right * tick / 5:.0%}</text>',
            f'<line class="grid" x1="{LEFT}" x2="{last}" y1="{y}" y2="{y}"/>',
            f'<text class="quiet" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{1 - tick / 5:.0%}</text>',
        ]
    parts += [
        f'<text class="quiet" x="{(LEFT + last) / 2}" y="{bottom + 40}" text-anchor="middle">tokens kept</text>',
        f'<text class="quiet" x="16" y="{(TOP + bottom) / 2}" transform="rotate(-90 16 {(TOP + bottom) / 2})" '
        'text-anchor="middle">facts kept</text>',
    ]
    return parts


def _dot(row: Kept, right: float, kind: str, radius: int) -> str:
    x, y = _place(row, right)
    title = escape(f"{row.log or 'all logs'}, {row.compactor}: {_said(row)}", quote=False)
    return f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius}"><title>{title}</title></circle>'


def _said(row: Kept) -> str:
    tokens, facts = _shares(row)
    return f"{tokens:.0%} of tokens, {facts:.0%} of facts"


def _labels(totals: Sequence[Kept], right: float) -> list[str]:
    """The compactors' names beside their large dots, none over another."""
    parts: list[str] = []
    lowest = -1000.0
    for total in sorted(totals, key=lambda total: _place(total, right)[1]):
        x, y = _place(total, right)
        lowest = max(y + 4, lowest + 18)
        anchor, at = ("start", x + 14) if x < WIDTH * 0.65 else ("end", x - 14)
        text = escape(f"{total.compactor}: {_said(total)}", quote=False)
        parts.append(f'<text class="label" x="{at}" y="{lowest}" text-anchor="{anchor}">{text}</text>')
    return parts
