"""The later use of each value: who named it, which call used it, which keys hold such values.

No tool's schema is known here. That a field matters is learned from the conversation itself: a key whose values people
and later calls took up before is a key whose values will be needed again. For that the whole input is read before any
part of it is weighed, calls with the results that answer them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt

import msgspec

from memory_engine.compactors.extractive.agenda import Agenda
from memory_engine.compactors.extractive.entries import Entry, EntryKind, Line
from memory_engine.compactors.extractive.phrases import says_something
from memory_engine.compactors.extractive.sentences import statements
from memory_engine.compactors.extractive.structured import Leaf, ScalarRecord, identity, read_json, records
from memory_engine.compactors.extractive.words import (
    VALUE_MARK,
    is_grammar,
    is_identifier,
    specificity,
    text_terms,
)

USED_BONUS = 2.0
NAMED_BONUS = 1.6
SAID_BONUS = 1.4
FIRST_MENTION_BONUS = 1.4
RARITY_EXPONENT = 0.55
GRAMMAR_FACTOR = 0.3
LENGTH_MAX = 8
"""Longer words say more, up to about this length."""


class TermUsage:
    """Counts over one input: in how many entries each term occurs, and how values were taken up."""

    def __init__(self, entries: Sequence[Entry], earlier: Iterable[str] = ()) -> None:
        """One pass over the entries and the texts of earlier lines; linear in their length."""
        self.frequency: Counter[str] = Counter()
        self._first: dict[str, int] = {}
        self._last_taken_up: dict[str, int] = {}
        self._used: set[str] = set()
        self._named: set[str] = set()
        self._said: set[str] = set()
        self._in_results: set[str] = set()
        self._last_record: dict[tuple[str, str], int] = {}
        self._key_hits: Counter[str] = Counter()
        self._key_total: Counter[str] = Counter()
        for text in earlier:
            self._meet(0, dict.fromkeys(text_terms(text)))
        for index, entry in enumerate(entries):
            self._read(index, entry)

    def _meet(self, index: int, terms: Iterable[str]) -> None:
        for term in terms:
            self.frequency[term] += 1
            self._first.setdefault(term, index)

    def _read(self, index: int, entry: Entry) -> None:
        said = dict.fromkeys(text_terms(entry.text))
        if entry.kind == "tool_call":
            arguments = dict.fromkeys(text_terms(entry.arguments))
            for term in arguments:
                if term[0] == VALUE_MARK and term in self._first:
                    self._used.add(term)
            said |= arguments
        self._meet(index, said)
        if entry.kind in ("tool_result", "error"):
            self._in_results.update(term for term in said if term[0] == VALUE_MARK)
            return
        taken_up = self._named if entry.kind == "user" else self._said
        for term in said:
            if term[0] == VALUE_MARK:
                taken_up.add(term)
                self._last_taken_up[term] = index

    def learn_keys(self, index: int, records: Iterable[ScalarRecord]) -> None:
        """Count for each key of a result (entry `index`) how many of its values were taken up later."""
        for record in records:
            self._last_record[record.label, identity(record).text] = index
            for leaf in record.leaves:
                key = key_of(record, leaf)
                self._key_total[key] += 1
                if self._last_taken_up.get(VALUE_MARK + leaf.text.lower(), -1) > index:
                    self._key_hits[key] += 1

    def key_worth(self, key: str, prior: float) -> float:
        """Between 0.1 and 1: the share of a key's values that were taken up, smoothed towards `prior`."""
        return 0.1 + 0.9 * (self._key_hits[key] + 2 * prior) / (self._key_total[key] + 2)

    def is_superseded(self, index: int, record: ScalarRecord) -> bool:
        """Whether a later outcome holds a record of the same identity: that one then is the state."""
        return self._last_record.get((record.label, identity(record).text), index) > index

    def is_taken_up(self, text: str) -> bool:
        """Whether anybody named, said or used the value, or a later call did."""
        term = VALUE_MARK + text.lower()
        return term in self._named or term in self._used or term in self._said

    def word_weight(self, word: str, term: str) -> float:
        """The worth of covering a term in speech: more for rare, long, specific and taken-up ones."""
        weight = self.frequency[term] ** -RARITY_EXPONENT if term in self.frequency else 1.0
        weight *= sqrt(min(len(word), LENGTH_MAX)) * (GRAMMAR_FACTOR if is_grammar(term) else 1.0)
        if term[0] == VALUE_MARK:
            weight = max(weight * 2, specificity(word) / 2) * self.bonus(term)
        return weight

    def value_weight(self, word: str, term: str) -> float:
        """The worth of a word of a structured value by its own shape and history (about 0.2 to 30)."""
        if term[0] == VALUE_MARK:
            return specificity(word) * self.bonus(term)
        return self.word_weight(word, term) * (0.8 if word[0].isupper() else 0.4)

    def bonus(self, term: str) -> float:
        """The factor by which a value gains worth because a later call used it, the user named it or it was said."""
        factor = USED_BONUS if term in self._used else 1.0
        if term in self._named:
            factor *= NAMED_BONUS
        if term in self._said:
            factor *= SAID_BONUS
        return factor

    def is_only_said(self, term: str) -> bool:
        """Whether a term is a value that stands in no result of a tool: what is not kept of speech is lost."""
        return term[0] == VALUE_MARK and term not in self._in_results

    def is_first(self, term: str, index: int) -> bool:
        """Whether the entry at `index` is the first to hold the term."""
        return self._first.get(term, index) >= index


def key_of(record: ScalarRecord, leaf: Leaf) -> str:
    """The name under which the usefulness of a leaf's key is counted, without positions or identifiers."""
    label = "" if is_identifier(record.label) else record.label
    return "\x00".join((label, *leaf.keys))


ERROR_PREFIXES = ("error", "traceback", "exception", "fatal", "failed")


class Action(msgspec.Struct, frozen=True):
    """A call and its outcome as places in the entries; -1 where one of them is missing."""

    call: int
    outcome: int

    @property
    def place(self) -> int:
        """Where the action stands in the input."""
        return self.call if self.call >= 0 else self.outcome


def pair_calls(entries: Sequence[Entry]) -> tuple[Action, ...]:
    """Each outcome with the latest open call of its id (ids may repeat), in the order of the calls."""
    open_calls: dict[str, list[int]] = {}
    outcome_of: dict[int, int] = {}
    actions: list[Action] = []
    for index, entry in enumerate(entries):
        if entry.kind == "tool_call":
            open_calls.setdefault(entry.call_id, []).append(index)
        elif entry.kind in ("tool_result", "error"):
            waiting = open_calls.get(entry.call_id, [])
            if waiting:
                outcome_of[waiting.pop()] = index
            elif entry.kind == "tool_result":
                actions.append(Action(-1, index))
    actions.extend(Action(i, outcome_of.get(i, -1)) for i, entry in enumerate(entries) if entry.kind == "tool_call")
    return tuple(sorted(actions, key=lambda action: action.place))


def failed(entry: Entry) -> bool:
    """Whether an outcome is an error: by its flag, by how tools begin their errors, or by a field that says so."""
    if entry.failed or entry.kind == "error" or entry.text.lstrip()[:9].lower().startswith(ERROR_PREFIXES):
        return True
    value = read_json(entry.text)
    return isinstance(value, dict) and (bool(value.get("error")) or value.get("success", value.get("ok")) is False)


AGENT_KINDS: frozenset[EntryKind] = frozenset(("assistant", "thinking", "tool_call", "tool_result", "error"))
SAID_KINDS: frozenset[EntryKind] = frozenset(
    ("user", "assistant", "thinking", "task", "todo", "question", "system", "summary", "other")
)


class InputReading(msgspec.Struct, frozen=True):
    """The knowledge of the whole input with which its entries are read one by one."""

    entries: Sequence[Entry]
    actions: tuple[Action, ...]
    usage: TermUsage
    agenda: Agenda
    has_agent: bool
    """Whether an agent takes part: its user's words then weigh more than its own."""
    closing: frozenset[int]
    """Places of the last thing each side said: the state of the conversation."""
    last_todo: int
    names: frozenset[str]
    """The speakers' names, folded: whom a greeting calls."""
    seen: set[str]
    """Sentences met so far, for marking repetitions down."""


def read(entries: Sequence[Entry], earlier: Sequence[Line]) -> InputReading:
    """Read the whole input once, so that its parts can be weighed."""
    usage = TermUsage(entries, [line.text for line in earlier])
    for index, entry in enumerate(entries):
        value = read_json(entry.text) if entry.kind in ("tool_result", "error") else None
        if value is not None:
            usage.learn_keys(index, records(value))
    names = frozenset(name.casefold() for entry in entries for name in entry.speaker.split())
    return InputReading(
        entries=entries,
        actions=pair_calls(entries),
        usage=usage,
        agenda=Agenda(entries),
        has_agent=any(entry.kind in AGENT_KINDS for entry in entries),
        closing=_closing(entries, names),
        last_todo=max((i for i, entry in enumerate(entries) if entry.kind == "todo"), default=-1),
        names=names,
        seen=set(),
    )


def _closing(entries: Sequence[Entry], names: frozenset[str]) -> frozenset[int]:
    """Places of the last thing of substance that each of the last two voices said."""
    found: dict[tuple[str, str], int] = {}
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.kind not in ("user", "assistant", "thinking", "task", "other"):
            continue
        if any(says_something(statement.text, names) for statement in statements(entry.text)):
            found.setdefault((entry.kind, entry.speaker), index)
        if len(found) == 2:
            break
    return frozenset(found.values())
