"""Calls as drafts: one line per call with its arguments, its outcome and the values that matter.

Equal calls with equal outcomes become one line. Of several outcomes of the same
call the last one is the state; the earlier ones are marked down, and so is a
record that a later outcome holds anew.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt

from memory_engine.compactors.extractive.coverage import LineDraft, LinePiece, Terms
from memory_engine.compactors.extractive.entries import GAP, Entry, Section
from memory_engine.compactors.extractive.sentences import clean, statements, words
from memory_engine.compactors.extractive.speech import REPETITION_FACTOR, speech_terms
from memory_engine.compactors.extractive.structured import Leaf, ScalarRecord, identity, read_json, records
from memory_engine.compactors.extractive.usage import Action, InputReading, failed, key_of
from memory_engine.compactors.extractive.words import (
    DATE,
    is_identifier,
    is_specific,
    terms_of,
)
from memory_engine.core.lazy import regex

ARROW = " →"
CROSS = " ✗"
PENDING = " (no result yet)"
LONG_VALUE_CHARS = 100
DATE_CHARS_MAX = 10
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
TELLS_ERROR = regex(r"(?i)(?:error|exception|failure|failed|fatal|denied|not found)\b")
LIKELY = 0.6
UNLIKELY = 0.15
"""How likely a value of its shape is needed again, before its key has shown it."""


def action_drafts(reading: InputReading) -> list[tuple[int, LineDraft]]:
    """For each distinct action its place in the input (that of its last repetition) and its draft."""
    repeats: dict[tuple[str, str, str], list[Action]] = {}
    last_of: dict[tuple[str, str], tuple[str, str, str]] = {}
    for action in reading.actions:
        signature = _signature(reading.entries, action)
        repeats.setdefault(signature, []).append(action)
        last_of[signature[:2]] = signature
    found = []
    for signature, actions in repeats.items():
        factor = 1.0 if last_of[signature[:2]] == signature else SUPERSEDED_FACTOR
        found.append((actions[-1].place, _draft(reading, actions, factor)))
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
    opener = entries[action.place]
    outcome = entries[action.outcome] if action.outcome >= 0 else None
    line = _ActionLine(reading, _title(opener, len(actions), pending=outcome is None))
    if action.call >= 0:
        line.add_text(action.call, opener.arguments or opener.text, 1.0)
    if outcome is not None and outcome.text.strip():
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


def _section(outcome: Entry | None) -> Section:
    if outcome is None:
        return "current_state"
    return "attempted_approaches" if failed(outcome) else "completed_actions"


class _ActionLine:
    """The pieces of one action's line while they are gathered; new ones hang below `parent`."""

    def __init__(self, reading: InputReading, title: str) -> None:
        self.reading = reading
        self.pieces = [LinePiece(title, (), -1)]
        self.parent = 0

    def value_title(self, index: int, factor: float) -> None:
        """Let the title count for itself, as an action without arguments and outcome has nothing else."""
        title = self.pieces[0].text
        self.pieces[0] = LinePiece(title, speech_terms(self.reading, index, title, factor), -1)

    def open_outcome(self, sign: str) -> None:
        """Begin the outcome, introduced by its sign."""
        self.parent = len(self.pieces)
        self.pieces.append(LinePiece(sign, ()))

    def add_text(self, index: int, text: str, factor: float) -> None:
        """The text of entry `index`: its records if it is JSON, else its sentences."""
        value = read_json(text)
        if value is None:
            self._add_prose(index, text, factor * PROSE_FACTOR, self.parent)
            return
        found = list(records(value))
        alike = Counter(record.label for record in found)
        age = RECENCY_FLOOR + (1 - RECENCY_FLOOR) * (index + 1) / len(self.reading.entries)
        label = ""
        for record in found:
            # One record of many alike is unlikely to be the one needed later, unless somebody took it up.
            worth = VALUE_FACTOR * factor * age * self._standing(index, record) / sqrt(alike[record.label])
            self._add_record(record, index, worth, labelled=record.label != label)
            label = record.label

    def _standing(self, index: int, record: ScalarRecord) -> float:
        """More for a record that was talked about or used by a later call, less for one updated later."""
        usage = self.reading.usage
        taken_up = any(is_specific(leaf.text) and usage.is_taken_up(leaf.text) for leaf in record.leaves)
        superseded = usage.is_superseded(index, record)
        return (TALKED_ABOUT_FACTOR if taken_up else 1.0) * (SUPERSEDED_FACTOR if superseded else 1.0)

    def _add_prose(self, index: int, text: str, factor: float, parent: int) -> None:
        """Sentences as they are: a tool may have printed code, where every word counts."""
        seen = self.reading.seen
        for sentence in statements(text, lines=True):
            weight = factor * (REPETITION_FACTOR if sentence.text in seen else 1.0)
            if TELLS_ERROR.search(sentence.text):
                weight *= ERROR_LINE_FACTOR
            seen.add(sentence.text)
            terms = speech_terms(self.reading, index, sentence.text, weight)
            if terms:
                self.pieces.append(LinePiece(f"; {sentence.text}", terms, parent))

    def _add_record(self, record: ScalarRecord, index: int, worth: float, *, labelled: bool) -> None:
        """A record opens with the leaf that names it; the others hang below, grouped as they were."""
        first = identity(record)
        shared = _shared_key_parts(record)
        label = f"{clean(record.label)} " if labelled and record.label not in first.text else ""
        head = len(self.pieces)
        self.pieces.append(
            LinePiece(f"; {label}{_shown(first, shared)}", self._terms(record, first, worth), self.parent)
        )
        told = f"{record.label} {first.text}"
        group, group_at = "", head
        for leaf in record.leaves:
            if len(leaf.keys) > 1 and leaf.keys[0] != group:
                group, group_at = leaf.keys[0], len(self.pieces)
                self.pieces.append(LinePiece(f" {clean(group)}", (), head))
            below = group_at if len(leaf.keys) > 1 and _needs_key(leaf.text) else head
            if len(leaf.text) > LONG_VALUE_CHARS:
                self._add_prose(index, leaf.text, PROSE_FACTOR * worth / VALUE_FACTOR, head)
            elif leaf is not first and leaf.text not in told:
                self.pieces.append(LinePiece(f" {_shown(leaf, shared)}", self._terms(record, leaf, worth), below))

    def _terms(self, record: ScalarRecord, leaf: Leaf, worth: float) -> Terms:
        """A leaf counts as the values in it, each by its shape, its history and the use of its key."""
        usage = self.reading.usage
        is_date = len(leaf.text) <= DATE_CHARS_MAX and DATE.match(leaf.text) is not None
        prior = LIKELY if is_date or is_identifier(leaf.text) else UNLIKELY
        worth *= usage.key_worth(key_of(record, leaf), prior)
        weights: dict[str, float] = {}
        for match in words(leaf.text[:LONG_VALUE_CHARS]):
            for term in terms_of(match.group()):
                weights[term] = max(weights.get(term, 0.0), worth * usage.value_weight(match.group(), term))
        return tuple(weights.items())


def _shared_key_parts(record: ScalarRecord) -> frozenset[str]:
    """Parts of keys that tell nothing inside this record, as more than one key has them."""
    seen: Counter[str] = Counter()
    for leaf in record.leaves:
        if leaf.keys:
            seen.update(dict.fromkeys(leaf.keys[-1].split("_")).keys())
    return frozenset(part for part, count in seen.items() if count > 1)


def _shown(leaf: Leaf, shared: frozenset[str]) -> str:
    """The value, after the parts of its key that distinguish it from its neighbours, where it needs a key."""
    text = clean(leaf.text[: 2 * LONG_VALUE_CHARS])
    if len(text) > LONG_VALUE_CHARS:
        text = f"{text[:LONG_VALUE_CHARS].rstrip()} {GAP}"
    if not leaf.keys or not _needs_key(text):
        return text
    key = clean(leaf.keys[-1])
    own = [part for part in key.split("_") if part not in shared]
    return f"{'_'.join(own) or key} {text}"


def _needs_key(text: str) -> bool:
    """Numbers, dates and plain words mean nothing without their key; names and identifiers do."""
    return not (is_identifier(text) or text[:1].isupper() or " " in text)
