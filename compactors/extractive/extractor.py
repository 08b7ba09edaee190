"""The compactor that needs no model: it chooses lines of speech and calls as a Markdown summary.

Pure and deterministic: the same entries give the same bytes on any machine.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from memory_engine.compactors.extractive.actions import ARROW, CROSS, PENDING, action_drafts
from memory_engine.compactors.extractive.coverage import LaterDraft, LineDraft, LinePiece, follows, selecting
from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, SECTIONS, Entry, Line
from memory_engine.compactors.extractive.focus import NO_PRIORITIES, Lift, Priorities, lifting
from memory_engine.compactors.extractive.gathering import cost_of, within, work_lines
from memory_engine.compactors.extractive.speech import KIND_FACTORS, SPEAKERS, speech_drafts, speech_terms
from memory_engine.compactors.extractive.usage import SAID_KINDS, InputReading, read_input
from memory_engine.context.headings import HEADINGS_CHARS_MAX
from memory_engine.context.rendering import render_lines
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.sections import PEOPLE, SAID
from memory_engine.core.slices import Steps, finish
from memory_engine.language.sentences import GAP, clean, words

STAMPS_SHARE_MAX = 0.08
"""Dates may take this share of the budget; where they would take more, they are left out in favour of facts."""
OPENINGS = (":", ARROW, CROSS, ".", "!", "?")
STALE_FACTORS = {"current_state": 0.05, "next_steps": 0.3}
"""Share of its worth that an older summary's state and plans keep once newer entries follow it. Applies to those of the
agent and its tools, never to a person's."""
WORK_SHARE_MAX = 0.5
"""Share of the budget reserved for lines of work at most; beyond it, they get what speech leaves."""

AGENT_SPEAKERS = frozenset(SPEAKERS[kind] for kind in ("assistant", "thinking", "system"))
SPEAKER_CHARS_MAX = 40


def extract(
    entries: Sequence[Entry],
    budget_tokens: float,
    *,
    earlier: Sequence[Line] = (),
    size: Callable[[str], int] = len,
    priorities: Priorities = NO_PRIORITIES,
) -> tuple[Line, ...]:
    """Return the lines worth most within the budget, section by section in reading order: all of `extracting`."""
    return finish(extracting(entries, budget_tokens, earlier=earlier, size=size, priorities=priorities))


def extracting(
    entries: Sequence[Entry],
    budget_tokens: float,
    *,
    earlier: Sequence[Line] = (),
    size: Callable[[str], int] = len,
    priorities: Priorities = NO_PRIORITIES,
) -> Steps[tuple[Line, ...]]:
    """The lines worth most within the budget, section by section in reading order, step by step.

    Budget: tokens (characters / 4) of the lines with their "- " and newline;
    headings are not counted. `earlier` are the lines of an older summary whose
    originals are out of reach: they compete unchanged and keep their sources,
    but what they say of state and plans yields to later entries. `size` counts
    instead of characters what a quarter of a token is. `priorities` raise the
    worth of the lines about them; the budget stays the same.
    """
    if budget_tokens <= 0:
        return ()
    reading = yield from read_input(entries, earlier)
    work, others = yield from work_lines(reading, earlier)
    lift = (yield from lifting(reading, earlier, priorities)) if priorities else None
    drafts = yield from _drafts(reading, others, lift)
    reserve = _stamps_cost(reading.days)
    stamped = 0 < reserve <= STAMPS_SHARE_MAX * budget_tokens
    lines: list[Line] = []
    day = ""
    left = budget_tokens - reserve * stamped
    claimed = min(cost_of((one.line for one in work), size) / CHARS_PER_TOKEN, WORK_SHARE_MAX * left)
    selected = yield from selecting(drafts, left - claimed, size)
    yield
    del drafts  # tens of thousands of objects are freed in a step of their own
    yield
    for draft, chosen in selected:
        for text in _draft_lines(draft, chosen):
            stamp = stamped and draft.section == SAID and draft.day not in ("", day)
            day = draft.day if stamp else day
            lines.append(Line(draft.section, f"[{day}] {text}" if stamp else text, draft.sources))
    whole = budget_tokens * CHARS_PER_TOKEN
    if lift is not None:
        work = lift.ranked(work)
    lines += within(work, whole - cost_of(lines, size), whole, size)
    return tuple(line for section in SECTIONS for line in lines if line.section == section)


def _draft_lines(draft: LineDraft, chosen: Sequence[int]) -> list[str]:
    """Return the lines of a draft: one for a call, with a sign where it omits something; one per run for speech."""
    if draft.speaker is None:
        text = _join_pieces([draft.pieces[place].text for place in chosen])
        return [text if len(chosen) == len(draft.pieces) else f"{text} {GAP}"] if text else []
    found: list[str] = []
    last: LinePiece | None = None
    for piece in (draft.pieces[place] for place in chosen):
        if last is not None and piece.before is not None and follows(piece, last):
            found[-1] += piece.before + piece.text
        else:
            found.append(f"{draft.speaker}{piece.text}")
        last = piece
    return found


def _stamps_cost(days: Iterable[str]) -> float:
    """Return the tokens for a date before the first line of each day; 0 if all lines are of one day."""
    changes = [day for before, day in pairwise(["", *filter(None, days)]) if day != before]
    return sum(len(day) + 3 for day in changes) / CHARS_PER_TOKEN if len(changes) > 1 else 0.0


def _join_pieces(texts: Sequence[str]) -> str:
    """Join the chosen pieces into one line, never longer than their sum: an opening takes no separator."""
    line = ""
    for text in texts:
        if text in (ARROW, CROSS):
            line = line.removesuffix(":")
        line += text[1:] if text.startswith("; ") and line.endswith(OPENINGS) else text
    return " ".join(line.split()).removesuffix(ARROW)


def _drafts(reading: InputReading, earlier: Sequence[Line], lift: Lift | None) -> Steps[list[LineDraft | LaterDraft]]:
    """Build the drafts: earlier lines first, then the entries in order, each outcome at the position of its call."""
    placed = yield from action_drafts(reading)
    paired = {action.outcome for action in reading.actions}
    for index, entry in enumerate(reading.entries):
        if entry.kind in SAID_KINDS or (entry.kind == "error" and index not in paired):
            placed.extend((index, draft) for draft in speech_drafts(reading, index))
            yield
    placed.sort(key=lambda item: item[0])
    placed = [*((-1, _earlier_draft(reading, line)) for line in earlier), *placed]
    if lift is None:
        return [draft for _, draft in placed]
    drafts: list[LineDraft | LaterDraft] = []
    for place, draft in placed:
        drafts.append(lift.raised(place, draft))
        yield
    return drafts


def _earlier_draft(reading: InputReading, line: Line) -> LineDraft:
    """Return an earlier line as a draft. A person's words keep full worth, but no longer wait for an answer."""
    text = clean(line.text)
    section, factor = line.section, 1.0
    if section in PEOPLE:
        section = SAID if reading.entries else section
        factor = KIND_FACTORS["user"] if reading.has_agent else 1.0
    elif reading.entries and _is_stale(line):
        factor = STALE_FACTORS[section]
    return LineDraft(section, line.sources, (LinePiece(text, speech_terms(reading, 0, words(text), factor), -1),))


def _is_stale(line: Line) -> bool:
    """Return True if the line holds a state or plan of the agent's; older summaries keep people's words there, too."""
    if line.section not in STALE_FACTORS:
        return False
    speaker, sign, _ = line.text.partition(": ")
    return speaker in AGENT_SPEAKERS or PENDING in line.text or not sign or len(speaker) > SPEAKER_CHARS_MAX


HEADING_TOKENS = HEADINGS_CHARS_MAX / CHARS_PER_TOKEN
"""Maximum cost of title and headings in tokens, beyond the lines."""


def render(lines: Sequence[Line], *, cite: bool = False) -> str:
    """The summary as Markdown, ending in a newline; sections without lines are left out, "" for no lines.

    With `cite`, each line ends in the ids it came from: ` [id, id]`.
    """
    if not lines:
        return ""
    cited = (f"{line.text} [{', '.join(line.sources)}]" if cite else line.text for line in lines)
    return render_lines([SummaryLine(line.section, text) for line, text in zip(lines, cited, strict=True)]) + "\n"
