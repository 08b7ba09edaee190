"""Texts about a log for people: events and chunks in a few words, cut to fit and safe to print; counts and sizes."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from memory_engine.core.chunks import Chunk, content_text
from memory_engine.core.events.base import Event, ToolCall, UnknownEvent
from memory_engine.core.events.compaction import CompactionCompleted, CompactionStarted, CompactionUndone
from memory_engine.core.lazy import regex

_TURNS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
_HOSTILE = regex(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS}\ud800-\udfff]")
"""Characters that could move the cursor, colour the screen or reverse text: all controls but tab and newline."""
CHARACTERS_KEPT = 4_096
"""Characters beyond ASCII whose widths are kept: finding one out takes as long as printing a word."""
FOCUS_CHARS_MAX = 40
"""Columns that the focus of a compaction may take."""
_IN_JSON = regex(f"[\x7f-\x9f{_TURNS}]")


def escaped(text: str) -> str:
    """The text with every control character but tab and newline written out in hexadecimal."""
    return _HOSTILE.sub(_written_out, text)


def escaped_in_json(text: str) -> str:
    """JSON text without control characters in its strings; it still means the same."""
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


@lru_cache(maxsize=CHARACTERS_KEPT)
def _columns_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """The text, cut to `width` columns with an ellipsis at the end if it is longer."""
    if text.isascii():
        return text if len(text) <= width else text[: max(0, width - 1)] + "…"
    taken, cut = 0, None
    for at, character in enumerate(text):
        taken += _columns_of(character)
        if cut is None and taken > width - 1:
            cut = at
        if taken > width:
            return text[:cut] + "…"
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
    if value < 1000:
        return counted(value, "byte")
    amount, units = value / 1000, ["kB", "MB", "GB", "TB"]
    while round(amount, 1) >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:,.1f} {units[0]}"


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.{1 if seconds < 0.1 else 0}f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def ago(seconds: float) -> str:
    """How long ago something was, in one unit: `3 min ago`. A time ahead, by another machine's clock, is now."""
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {'day' if unit == 'days' and count == 1 else unit} ago"
    return "just now"


def of_event(event: Event | UnknownEvent) -> str:
    """An event in a few words."""
    match event:
        case UnknownEvent():
            return f"(version {event.version} is not known here)"
        case CompactionStarted():
            focus = f"; focus: {event.focus}" if event.focus else ""
            return f"{event.trigger}: {counted(len(event.chunk_ids), 'chunk')} to {event.compactor}{focus}"
        case CompactionCompleted():
            covered = sum(len(replacement.covers) for replacement in event.replacements)
            tokens = f"{number(event.tokens_before)} → {number(event.tokens_after)} tokens"
            return f"{event.trigger}: {counted(covered, 'chunk')}, {tokens}, by {event.compactor}"
        case CompactionUndone():
            why = f": {event.reason}" if event.reason else ""
            back = f"{counted(len(event.restored), 'chunk')} back"
            return f"the compaction of event {event.completed}, {back}{why}"
    if said := event.in_few_words():
        return said
    body = event.bodies()[0] if event.bodies() else None
    said = " ".join(filter(None, (content_text(body.content), of_calls(body.calls)))) if body else ""
    return said or ", ".join(f"{name} {_field(value)}" for name, value in msgspec.to_builtins(event).items())


def _field(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple | dict) else value


def of_calls(calls: Sequence[ToolCall]) -> str:
    """Calls as a programmer writes them."""
    return " ".join(f"{call.name}({call.arguments})" for call in calls)


def of_chunk(chunk: Chunk) -> str:
    """A chunk in a few words."""
    said = " ".join(filter(None, (chunk.text, of_calls(chunk.calls))))
    if chunk.call_id:
        said = f"← {chunk.label or chunk.call_id}: {said}"
    return f"{chunk.status}: {said}" if chunk.status in ("failed", "completed", "in_progress") else said


def parents(chunk: Chunk) -> str:
    """The chunks that it came from: all of a few, the first and the last of many."""
    ids = chunk.parent_ids
    return " ".join(ids) if len(ids) <= 2 else f"{ids[0]}…{ids[-1]}"
