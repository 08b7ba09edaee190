"""The values that the extractor reads and returns: plain data without behaviour.

Costs are in tokens, counted as characters / 4 everywhere in this package: the
estimate needs no tokenizer, is the same on every machine, and is what the
budget of a compaction is stated in.
"""

from typing import Literal

import msgspec

from memory_engine.core.events.base import SummaryLine
from memory_engine.core.sections import SECTION_ORDER

EntryKind = Literal[
    "user",
    "assistant",
    "thinking",
    "tool_call",
    "tool_result",
    "error",
    "task",
    "todo",
    "question",
    "system",
    "summary",
    "notice",
    "other",
]
Section = str
"""The kind of a line, one of `core.sections`."""
SECTIONS = SECTION_ORDER
CHARS_PER_TOKEN = 4
LINE_FRAME_CHARS = 3
"""Characters of a line besides its text: the leading "- " and the newline."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened, as the extractor reads it."""

    id: str
    """Opaque; the lines cite it."""
    kind: EntryKind
    text: str
    """The words said, the result's text or the error's text."""
    speaker: str = ""
    """Shown before the text; empty: derived from the kind."""
    name: str = ""
    """Name of the tool, skill or sub-agent."""
    call_id: str = ""
    """Shared by a tool_call and its result or error."""
    arguments: str = ""
    """JSON text of a call's arguments."""
    failed: bool = False
    """The result is an error."""
    at: str = ""
    """ISO time or any date text."""


Line = SummaryLine
"""A line as the log holds it: its `sources` are ids of entries, at least one."""


def tokens(line: Line) -> float:
    """The cost of a rendered line, in tokens."""
    return (len(line.text) + LINE_FRAME_CHARS) / CHARS_PER_TOKEN
