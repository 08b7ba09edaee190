"""The compactor that needs no model: it chooses lines of speech and calls as a Markdown summary.

Pure and deterministic: the same entries give the same bytes on any machine.
"""

from collections.abc import Sequence
from itertools import pairwise

from memory_engine.compactors.extractive.actions import ARROW, CROSS, action_drafts
from memory_engine.compactors.extractive.coverage import LineDraft, LinePiece, select
from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, SECTIONS, Entry, Line, Section
from memory_engine.compactors.extractive.speech import day_of, speech_drafts, speech_terms
from memory_engine.compactors.extractive.usage import SAID_KINDS, InputReading, read
from memory_engine.compactors.extractive.words import clean

STAMPS_SHARE_MAX = 0.08
"""Dates may take this share of the budget; where they would take more, they are left out in favour of facts."""
OPENINGS = (":", ARROW, CROSS, ".", "!", "?")
STALE_FACTORS = {"current_state": 0.05, "next_steps": 0.3}
"""The share of its worth that an older summary's state and plans keep once newer entries follow it."""


def extract(entries: Sequence[Entry], budget_tokens: float, *, earlier: Sequence[Line] = ()) -> tuple[Line, ...]:
    """The lines worth most within the budget, section by section in reading order.

    Budget: tokens (characters / 4) of the lines with their "- " and newline;
    headings are not counted. `earlier` are the lines of an older summary whose
    originals are out of reach: they compete as they are and keep their sources,
    but what they say of state and plans yields to later entries.
    """
    if budget_tokens <= 0:
        return ()
    reading = read(entries, earlier)
    drafts = _drafts(reading, earlier)
    reserve = _stamps_cost(entries)
    stamped = 0 < reserve <= STAMPS_SHARE_MAX * budget_tokens
    lines: list[Line] = []
    day = ""
    for draft, chosen in zip(drafts, select(drafts, budget_tokens - reserve * stamped), strict=True):
        text = _joined([draft.pieces[place].text for place in chosen])
        if text and stamped and draft.section == "key_information" and draft.day not in ("", day):
            day = draft.day
            text = f"[{day}] {text}"
        if text:
            lines.append(Line(draft.section, text, draft.sources))
    return tuple(line for section in SECTIONS for line in lines if line.section == section)


def _stamps_cost(entries: Sequence[Entry]) -> float:
    """Tokens for a date before the first line of each day, 0 where all lines are of one day."""
    days = [day for day in map(day_of, entries) if day]
    changes = [day for before, day in pairwise(["", *days]) if day != before]
    return sum(len(day) + 3 for day in changes) / CHARS_PER_TOKEN if len(changes) > 1 else 0.0


def _joined(texts: Sequence[str]) -> str:
    """The chosen pieces as one line: no separator after an opening, so never longer than their sum."""
    line = ""
    for text in texts:
        if text in (ARROW, CROSS):
            line = line.removesuffix(":")
        line += text[1:] if text.startswith("; ") and line.endswith(OPENINGS) else text
    return " ".join(line.split()).removesuffix(ARROW)


def _drafts(reading: InputReading, earlier: Sequence[Line]) -> list[LineDraft]:
    """Earlier lines first, then the entries in order, calls with their outcomes at the place of the call."""
    placed = action_drafts(reading)
    paired = {action.outcome for action in reading.actions}
    for index, entry in enumerate(reading.entries):
        if entry.kind in SAID_KINDS or (entry.kind == "error" and index not in paired):
            placed.extend((index, draft) for draft in speech_drafts(reading, index))
    placed.sort(key=lambda item: item[0])
    return [_earlier_draft(reading, line) for line in earlier] + [draft for _, draft in placed]


def _earlier_draft(reading: InputReading, line: Line) -> LineDraft:
    text = clean(line.text)
    factor = STALE_FACTORS.get(line.section, 1.0) if reading.entries else 1.0
    return LineDraft(line.section, line.sources, (LinePiece(text, speech_terms(reading, 0, text, factor), -1),))


TITLE = "## Progress Summary"
HEADINGS: dict[Section, str] = {
    "completed_actions": "### Completed Actions",
    "attempted_approaches": "### Attempted Approaches",
    "current_state": "### Current State",
    "key_information": "### Key Information",
    "next_steps": "### Next Steps",
}
HEADING_TOKENS = (len(TITLE) + 1 + sum(len(heading) + 3 for heading in HEADINGS.values())) / CHARS_PER_TOKEN
"""The most that title and headings cost beside the lines, in tokens."""


def render(lines: Sequence[Line], *, cite: bool = False) -> str:
    """The summary as Markdown, ending in a newline; sections without lines are left out, "" for no lines.

    With `cite`, each line ends in the ids it came from: ` [id, id]`.
    """
    if not lines:
        return ""
    parts = [f"{TITLE}\n"]
    for section in SECTIONS:
        body = [_bullet(line, cite) for line in lines if line.section == section]
        if body:
            parts.append(f"\n{HEADINGS[section]}\n\n{''.join(body)}")
    return "".join(parts)


def _bullet(line: Line, cite: bool) -> str:
    return f"- {line.text} [{', '.join(line.sources)}]\n" if cite else f"- {line.text}\n"
