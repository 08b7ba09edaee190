"""Calls as drafts: one line per call with its arguments, its outcome and the values that matter.

Equal calls with equal outcomes become one line. Of several outcomes of the same call the last one is the current state.
Earlier outcomes weigh less, and so does a record that a later outcome contains again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from math import sqrt

from memory_engine.compactors.extractive.coverage import (
    NO_TERMS,
    ROUNDING_FACTOR,
    LaterDraft,
    LineDraft,
    LinePiece,
    Terms,
)
from memory_engine.compactors.extractive.entries import LINE_FRAME_CHARS, Entry, Section
from memory_engine.compactors.extractive.outputs import shorten_middle
from memory_engine.compactors.extractive.speech import REPETITION_FACTOR, speech_terms
from memory_engine.compactors.extractive.structured import ToldRecord, Value
from memory_engine.compactors.extractive.texts import OutputLine, SourceText, source_text
from memory_engine.compactors.extractive.usage import Action, Heard, InputReading, TermUsage, failed
from memory_engine.core.slices import Steps
from memory_engine.language.sentences import GAP, clean, words

ARROW = " →"
CROSS = " ✗"
PENDING = " (no result yet)"
EMPTY = " (empty result)"
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
ACTIONS_MIN = 100
"""With fewer actions than this, most drafts are built in the end, so computing bounds first does not pay."""
CHARS_MAX = 1 << 62


def action_drafts(reading: InputReading) -> Steps[list[tuple[int, LineDraft | LaterDraft]]]:
    """Return each distinct action's draft with its position in the input (that of its last repetition)."""
    repeats: dict[tuple[str, str, str], list[Action]] = {}
    last_of: dict[tuple[str, str], tuple[str, str, str]] = {}
    for action in reading.actions:
        if action in reading.work:
            continue
        signature = _signature(reading.entries, action)
        repeats.setdefault(signature, []).append(action)
        last_of[signature[:2]] = signature
        yield
    found: list[tuple[int, LineDraft | LaterDraft]] = []
    for signature, actions in repeats.items():
        factor = 1.0 if last_of[signature[:2]] == signature else SUPERSEDED_FACTOR
        told = _RepeatedAction(reading, actions, factor)
        is_made_now = len(repeats) < ACTIONS_MIN or told.tells_prose
        found.append((actions[-1].place, told.draft() if is_made_now else told.later_draft()))
        yield
    return found


def _signature(entries: Sequence[Entry], action: Action) -> tuple[str, str, str]:
    """Return one action as text: the call, its arguments and its outcome."""
    outcome = entries[action.outcome].text if action.outcome >= 0 else ""
    if action.call < 0:
        return entries[action.outcome].name, outcome, outcome
    call = entries[action.call]
    return call.name, call.arguments or call.text, outcome


class _RepeatedAction:
    """One action with its equal repetitions, represented by the last one, and the texts that describe it."""

    def __init__(self, reading: InputReading, actions: Sequence[Action], factor: float) -> None:
        action = actions[-1]
        self._reading, self._actions, self._factor = reading, actions, factor
        self._opener = reading.heard[action.place]
        self._outcome = reading.heard[action.outcome] if action.outcome >= 0 else None
        self._title = _title(self._opener.entry, len(actions), _state(self._outcome))
        self._texts: list[tuple[int, SourceText, float]] = []
        """The texts of the call and its outcome: position, text, and a factor for its worth."""
        if action.call >= 0:
            opener = self._opener
            asks = opener.arguments if opener.entry.arguments else opener.text
            self._texts.append((action.call, asks if self._outcome is not None else _call_title(asks), 1.0))
        if self._outcome is not None and not (self._outcome.text.output.is_empty and not failed(self._outcome)):
            worth = ERROR_FACTOR if failed(self._outcome) else factor
            self._texts.append((action.outcome, self._outcome.text, worth))

    @property
    def tells_prose(self) -> bool:
        """Return True if the line may hold more than the values of records, or no records at all."""
        records = [text.records for _, text, _ in self._texts]
        return not any(records) or any(told is None or any(record.tells_prose for record in told) for told in records)

    def draft(self) -> LineDraft:
        """Build the action's line."""
        line = _ActionLine(self._reading, self._title)
        for index, text, factor in self._texts:
            if index == self._actions[-1].outcome:
                line.open_outcome(CROSS if self._outcome is not None and failed(self._outcome) else ARROW)
            line.add_text(index, text, factor)
        if len(line.pieces) == 1:
            line.value_title(self._actions[-1].place, self._factor)
        places = [place for repeat in self._actions for place in (repeat.call, repeat.outcome) if place >= 0]
        sources = tuple(dict.fromkeys(self._reading.entries[place].id for place in places))
        return LineDraft(_section(self._outcome), sources, tuple(line.pieces))

    def later_draft(self) -> LaterDraft:
        """Return the same line as a `LaterDraft`, built only once one of its records may be worth its cost."""
        rate_max, chars_min = 0.0, CHARS_MAX
        title = len(self._title) + LINE_FRAME_CHARS + len(f" {GAP}")
        for index, text, factor in self._texts:
            opening = title + len(ARROW) if index == self._actions[-1].outcome else title
            for record, worth in _weighted_records(self._reading, index, text.records or (), factor):
                chars = opening + len(record.opening)
                chars_min = min(chars_min, chars)
                rate_max = max(rate_max, worth * _rate_max(self._reading.usage, record, chars))
        return LaterDraft(rate_max * ROUNDING_FACTOR, chars_min, self.draft)


def _rate_max(usage: TermUsage, record: ToldRecord, chars: int) -> float:
    """Return the most that a value of the record, plus the one that names it, can gain per character.

    `chars` is the cost of everything before the naming value. The result is a multiple of the record's own worth.
    """
    name = record.name
    name_max = usage.worth_max(record.key, name)
    most = name_max / chars
    for key, value in zip(record.keys, record.values, strict=True):
        if value is not name:
            rate = (name_max + usage.worth_max(key, value)) / (chars + value.chars_min)
            most = max(most, rate)
    return most


def _weighted_records(
    reading: InputReading, index: int, records: Sequence[ToldRecord], factor: float
) -> Iterator[tuple[ToldRecord, float]]:
    """Yield the records of entry `index`, each with what one of its values is worth."""
    alike = Counter([record.label for record in records])
    age = RECENCY_FLOOR + (1 - RECENCY_FLOOR) * (index + 1) / len(reading.entries)
    for record in records:
        # One record of many alike is unlikely to be the one needed later, unless it was taken up.
        yield record, VALUE_FACTOR * factor * age * _standing(reading, index, record) / sqrt(alike[record.label])


def _standing(reading: InputReading, index: int, record: ToldRecord) -> float:
    """Weigh a record: more if people talked about it or a later call used it, less if a later result updated it."""
    taken_up = reading.usage.taken_up
    is_taken_up = any(value.term in taken_up and value.is_specific for value in record.values)
    superseded = reading.usage.is_superseded(index, record)
    return (TALKED_ABOUT_FACTOR if is_taken_up else 1.0) * (SUPERSEDED_FACTOR if superseded else 1.0)


def _call_title(asks: SourceText) -> SourceText:
    """Return what a call without a result names: a command's line; nothing for a text to write."""
    asked = asks.asked
    if asked.command is not None:
        return source_text(shorten_middle(asked.command.shown))
    return source_text(shorten_middle(asked.shown)) if asked.texts else asks


def _state(outcome: Heard | None) -> str:
    """Return what a line says of an action without a value."""
    if outcome is None:
        return PENDING
    return EMPTY if outcome.text.output.is_empty and not failed(outcome) else ""


def _title(opener: Entry, times: int, state: str) -> str:
    name = clean(opener.name) or ("call" if opener.kind == "tool_call" else "result")
    repeated = f" (×{times})" if times > 1 else ""
    return f"{name}{repeated}{state}:"


def _section(outcome: Heard | None) -> Section:
    if outcome is None:
        return "current_state"
    return "attempted_approaches" if failed(outcome) or outcome.text.output.is_empty else "completed_actions"


class _ActionLine:
    """The pieces of one action's line while they are collected; new pieces are children of `parent`."""

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
        """Add a text of entry `index`: its records if it is JSON, otherwise its sentences."""
        if text.records is None:
            self._add_prose(index, text.lines, factor * PROSE_FACTOR, self.parent)
            return
        for record, worth in _weighted_records(self.reading, index, text.records, factor):
            self._add_record(record, index, worth)

    def _add_prose(self, index: int, lines: Sequence[OutputLine], factor: float, parent: int) -> None:
        """Add sentences unchanged: a tool may have printed code, where every word counts."""
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
        """Add a record: first the leaf that names it, then the others as its children, in their original groups."""
        places: list[int] = []
        for part in record.parts:
            parent = places[part.below] if part.below >= 0 else self.parent
            places.append(len(self.pieces))
            if part.prose:
                self._add_prose(index, source_text(part.prose).lines, PROSE_FACTOR * worth / VALUE_FACTOR, parent)
            else:
                self.pieces.append(LinePiece(part.text, self._terms(part.key, part.value, worth), parent))

    def _terms(self, key: str, value: Value | None, worth: float) -> Terms:
        """Return a leaf's terms: its values, each weighed by its shape, its history and how its key was used."""
        if value is None:
            return NO_TERMS
        usage = self.reading.usage
        worth *= usage.key_worth(key, value.prior)
        weights: dict[str, float] = {}
        for term, weight in chain.from_iterable(map(usage.told.__getitem__, value.words)):
            weights[term] = max(weights.get(term, 0.0), worth * weight)
        return weights
