"""Text that is safe and fits: hostile content escaped, excerpts of one line, cells of a known width."""

import re
import unicodedata

from memory_engine.regex import regex

_TURNS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
_HOSTILE = regex(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS}\ud800-\udfff]")
"""What could move the cursor, colour the screen or turn text around: all controls but tab and newline."""
_IN_JSON = regex(f"[\x7f-\x9f{_TURNS}]")


def escaped(text: str) -> str:
    """The text with every control character but tab and newline written out in hexadecimal."""
    return _HOSTILE.sub(_written_out, text)


def escaped_in_json(text: str) -> str:
    """JSON text whose strings hold no control character either; it still means the same."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str, width: int) -> str:
    """The beginning of a text on one line of at most `width` columns, runs of space as one space."""
    return shortened(escaped(" ".join(text[: width * 8].split())), width)


def columns(text: str) -> int:
    """How many columns a terminal takes for the text."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """The text, cut to `width` columns with an ellipsis at the end if it is longer."""
    if columns(text) <= width:
        return text
    taken = 0
    for at, character in enumerate(text):
        taken += _columns_of(character)
        if taken > width - 1:
            return text[:at] + "…"
    return text


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces up to `width` columns; `right` puts them before it."""
    space = " " * max(0, width - columns(text))
    return space + text if right else text + space


def number(value: int) -> str:
    """A count with its thousands apart."""
    return f"{value:,}"


def counted(value: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{value:,} {noun}{'s' * (value != 1)}"


def size(value: int) -> str:
    """Bytes for people."""
    amount = float(value)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1000
    return ""


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.{1 if seconds < 0.1 else 0}f} ms"
    return f"{seconds:.1f} s"
