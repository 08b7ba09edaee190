"""Charts as SVG written by hand: a page with a title, text, lines and marks, readable on light and on dark pages.

Places are in pixels, from the left and from the top. Classes are those of the style: `title`, `quiet`, `page`, `grid`
and what a chart adds of its own, each with a rule for light and one for dark pages.
"""

from collections.abc import Iterable, Mapping
from html import escape

SvgPoint = tuple[float, float]
Size = tuple[int, int]

_TEXT = 'text { font-size: 13px; font-family: system-ui, "Segoe UI", sans-serif; fill: #24292f; }'
_SIZES = ".title { font-weight: 600; font-size: 15px; } .quiet { font-size: 12px; }"
_COLOURS: Mapping[str, tuple[str, str]] = {
    ".quiet": ("fill: #57606a;", "fill: #9da7b3;"),
    ".page": ("fill: #ffffff;", "fill: #0d1117;"),
    ".grid": ("stroke: #d0d7de;", "stroke: #30363d;"),
}


def page(
    label: str, size: Size, marks: Iterable[str], *, colours: Mapping[str, tuple[str, str]], style: str = ""
) -> str:
    """The file. `colours` are rules by selector, for light and for dark pages; `style` is CSS that holds for both."""
    width, height = size
    both = {**_COLOURS, **colours}
    light = " ".join(f"{selector} {{ {rule} }}" for selector, (rule, _) in both.items())
    dark = " ".join(f"{selector} {{ {rule} }}" for selector, (_, rule) in both.items())
    extent = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {extent} role="img" aria-label="{escape(label)}">',
            "<style>",
            f"svg {{ color-scheme: light dark; }} {_TEXT} {_SIZES} {style}",
            light,
            f"@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3; }} {dark} }}",
            "</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
            *marks,
            "</svg>",
            "",
        ]
    )


def text(at: SvgPoint, words: str, kind: str = "", *, anchor: str = "start", turned: bool = False) -> str:
    """A line of text on a baseline; `anchor` says which end of it is at the place, `turned` makes it vertical."""
    x, y = at
    turn = f' transform="rotate(-90 {x} {y})"' if turned else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x}" y="{y}"{turn} text-anchor="{anchor}">{escape(words, quote=False)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    """A line from one place to another."""
    return f'<line class="{kind}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>'


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    """A filled circle; its `title` shows where a pointer rests on it."""
    inner = f"<title>{escape(title, quote=False)}</title>" if title else ""
    return f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius}">{inner}</circle>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A filled bar with its upper left corner at a place."""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="2"/>'
