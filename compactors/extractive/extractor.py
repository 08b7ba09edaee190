"""The compactor that needs no model: lines chosen from what was said and done.

Pure and deterministic: the same entries give the same bytes on any machine.
"""

from collections.abc import Sequence

from memory_engine.compactors.extractive.actions import ARROW, CROSS, action_drafts
from memory_engine.compactors.extractive.coverage import Draft, Piece, select
from memory_engine.compactors.extractive.entries import SECTIONS, Entry, Line
from memory_engine.compactors.extractive.reading import SAID_KINDS, Reading, read
from memory_engine.compactors.extractive.sentences import clean
from memory_engine.compactors.extractive.speech import speech_drafts, speech_terms

OPENINGS = (":", ARROW, CROSS, ".", "!", "?")
STALE_FACTORS = {"current_state": 0.2, "next_steps": 0.5}
"""What is left of an older summary's state and plans once newer entries follow it."""


def extract(
    entries: Sequence[Entry], budget_tokens: float, *, earlier: Sequence[Line] = ()
) -> tuple[Line, ...]:
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
    lines: list[Line] = []
    for draft, chosen in zip(drafts, select(drafts, budget_tokens), strict=True):
        text = _joined([draft.pieces[place].text for place in chosen])
        if text:
            lines.append(Line(draft.section, text, draft.sources))
    return tuple(line for section in SECTIONS for line in lines if line.section == section)


def _joined(texts: Sequence[str]) -> str:
    """The chosen pieces as one line: no separator after an opening, so never longer than their sum."""
    line = ""
    for text in texts:
        if text in (ARROW, CROSS):
            line = line.removesuffix(":")
        line += text[1:] if text.startswith("; ") and line.endswith(OPENINGS) else text
    return line.strip().removesuffix(ARROW)


def _drafts(reading: Reading, earlier: Sequence[Line]) -> list[Draft]:
    """Earlier lines first, then the entries in order, calls with their outcomes at the place of the call."""
    placed = action_drafts(reading)
    paired = {action.outcome for action in reading.actions}
    for index, entry in enumerate(reading.entries):
        if entry.kind in SAID_KINDS or (entry.kind == "error" and index not in paired):
            placed.extend((index, draft) for draft in speech_drafts(reading, index))
    placed.sort(key=lambda item: item[0])
    return [_earlier_draft(reading, line) for line in earlier] + [draft for _, draft in placed]


def _earlier_draft(reading: Reading, line: Line) -> Draft:
    text = clean(line.text)
    factor = STALE_FACTORS.get(line.section, 1.0) if reading.entries else 1.0
    return Draft(line.section, line.sources, (Piece(text, speech_terms(reading, 0, text, factor), -1),))
