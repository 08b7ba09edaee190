"""Calls as drafts: one line per call with its arguments, its outcome and the values that matter.

Equal calls with equal outcomes become one line. Of several outcomes of the same
call the last one is the state; the earlier ones are marked down, and so is a
record that a later outcome holds anew.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from math import sqrt

from memory_engine.compactors.extractive.coverage import NO_TERMS, LineDraft, LinePiece, Terms
from memory_engine.compactors.extractive.entries import Entry, Section
from memory_engine.compactors.extractive.sentences import clean, words
from memory_engine.compactors.extractive.speech import REPETITION_FACTOR, speech_terms
from memory_engine.compactors.extractive.structured import ToldRecord, Value
from memory_engine.compactors.extractive.texts import OutputLine, SourceText, text_of
from memory_engine.compactors.extractive.usage import Action, Heard, InputReading, failed
from memory_engine.core.slices import Steps

ARROW = " →"
CROSS = " ✗"
PENDING = " (no result yet)"
VALUE_FACTOR = 4.5
"""A reader can guess a lost word of speech from the rest, but not a lost value."""
RECENCY_FLOOR = 0.6
SUPERSEDED_FACTOR = 0.3
TALKED_ABOUT_FACTOR = 2.0
PROSE_FACTOR = 0.6
ERROR_FACTOR = 3.0
"""Of a failed attempt the reason is what keeps the next reader from repeating it;
and it stays true when the same call succeeds later."""
ERROR_LINE_FACTOR = 2.0


def action_drafts(reading: InputReading) -> Steps[list[tuple[int, LineDraft]]]:
    """For each distinct action its place in the input (that of its last repetition) and its draft."""
    repeats: dict[tuple[str, str, str], list[Action]] = {}
    last_of: dict[tuple[str, str], tuple[str, str, str]] = {}
    for action in reading.actions:
        signature = _signature(reading.entries, action)
        repeats.setdefault(signature, []).append(action)
        last_of[signature[:2]] = signature
        yield
    found = []
    for signature, actions in repeats.items():
        factor = 1.0 if last_of[signature[:2]] == signature else SUPERSEDED_FACTOR
        found.append((actions[-1].place, _draft(reading, actions, factor)))
        yield
    return found


def _signature(entries: Sequence[Entry], action: Action) -> tuple[str, str, str]:
    """One action as text: the call, its arguments and its outcome."""
    outcome = entries[action.outcome].text if action.outcome >= 0 else ""
    if action.call < 0:
        return entries[action.outcome].name, outcome, outcome
    call = entries[action.call]
    return call.name, call.arguments or call.text, outcome


def _draft(reading: InputReading, actions: Sequence[Action], factor: float) -> LineDraft:
    """The line of one action; `actions` are its equal repetitions, the last one stands for all."""
    entries, action = reading.entries, actions[-1]
    opener = reading.heard[action.place]
    outcome = reading.heard[action.outcome] if action.outcome >= 0 else None
    line = _ActionLine(reading, _title(opener.entry, len(actions), pending=outcome is None))
    if action.call >= 0:
        line.add_text(action.call, opener.arguments if opener.entry.arguments else opener.text, 1.0)
    if outcome is not None and outcome.entry.text.strip():
        line.open_outcome(CROSS if failed(outcome) else ARROW)
        line.add_text(action.outcome, outcome.text, ERROR_FACTOR if failed(outcome) else factor)
    if len(line.pieces) == 1:
        line.value_title(action.place, factor)
    places = [place for repeat in actions for place in (repeat.call, repeat.outcome) if place >= 0]
    sources = tuple(dict.fromkeys(entries[place].id for place in places))
    return LineDraft(_section(outcome), sources, tuple(line.pieces))


def _title(opener: Entry, times: int, *, pending: bool) -> str:
    name = clean(opener.name) or ("call" if opener.kind == "tool_call" else "result")
    repeated = f" (×{times})" if times > 1 else ""
    return f"{name}{repeated}{PENDING if pending else ''}:"


def _section(outcome: Heard | None) -> Section:
    if outcome is None:
        return "current_state"
    return "attempted_approaches" if failed(outcome) else "completed_actions"


class _ActionLine:
    """The pieces of one action's line while they are gathered; new ones hang below `parent`."""

    def __init__(self, reading: InputReading, title: str) -> None:
        self.reading = reading
        self.pieces = [LinePiece(title, NO_TERMS, -1)]
        self.parent = 0

    def value_title(self, index: int, factor: float) -> None:
        """Let the title count for itself, as an action without arguments and outcome has nothing else."""
        title = self.pieces[0].text
        self.pieces[0] = LinePiece(title, speech_terms(self.reading, index, words(title), factor), -1)

    def open_outcome(self, sign: str) -> None:
        """Begin the outcome, introduced by its sign."""
        self.parent = len(self.pieces)
        self.pieces.append(LinePiece(sign, NO_TERMS))

    def add_text(self, index: int, text: SourceText, factor: float) -> None:
        """A text of entry `index`: its records if it is JSON, else its sentences."""
        if text.records is None:
            self._add_prose(index, text.lines, factor * PROSE_FACTOR, self.parent)
            return
        alike = Counter([record.label for record in text.records])
        age = RECENCY_FLOOR + (1 - RECENCY_FLOOR) * (index + 1) / len(self.reading.entries)
        for record in text.records:
            # One record of many alike is unlikely to be the one needed later, unless somebody took it up.
            worth = VALUE_FACTOR * factor * age * self._standing(index, record) / sqrt(alike[record.label])
            self._add_record(record, index, worth)

    def _standing(self, index: int, record: ToldRecord) -> float:
        """More for a record that was talked about or used by a later call, less for one updated later."""
        usage = self.reading.usage
        taken_up = any(map(usage.is_taken_up, record.specific))
        superseded = usage.is_superseded(index, record)
        return (TALKED_ABOUT_FACTOR if taken_up else 1.0) * (SUPERSEDED_FACTOR if superseded else 1.0)

    def _add_prose(self, index: int, lines: Sequence[OutputLine], factor: float, parent: int) -> None:
        """Sentences as they are: a tool may have printed code, where every word counts."""
        seen = self.reading.seen
        for line in lines:
            weight = factor * (REPETITION_FACTOR if line.text in seen else 1.0)
            if line.tells_error:
                weight *= ERROR_LINE_FACTOR
            seen.add(line.text)
            terms = speech_terms(self.reading, index, line.words, weight)
            if terms:
                self.pieces.append(LinePiece(f"; {line.text}", terms, parent))

    def _add_record(self, record: ToldRecord, index: int, worth: float) -> None:
        """A record opens with the leaf that names it; the others hang below, grouped as they were."""
        places: list[int] = []
        for part in record.parts:
            parent = places[part.below] if part.below >= 0 else self.parent
            places.append(len(self.pieces))
            if part.prose:
                self._add_prose(index, text_of(part.prose).lines, PROSE_FACTOR * worth / VALUE_FACTOR, parent)
            else:
                self.pieces.append(LinePiece(part.text, self._terms(part.value, worth), parent))

    def _terms(self, value: Value | None, worth: float) -> Terms:
        """A leaf counts as the values in it, each by its shape, its history and the use of its key."""
        if value is None:
            return NO_TERMS
        usage = self.reading.usage
        worth *= usage.key_worth(value.key, value.prior)
        weights: dict[str, float] = {}
        for term, weight in chain.from_iterable(map(usage.told.__getitem__, value.words)):
            weights[term] = max(weights.get(term, 0.0), worth * weight)
        return weights
