"""The later use of each value: who named it, which call used it, and which keys have such values.

No tool's schema is known here. The conversation itself shows which fields matter: a key whose values people and later
calls used before is a key whose values will be needed again. The whole input is therefore read before any part of it is
weighed, calls together with the results that answer them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import filterfalse
from typing import TypeVar

import msgspec

from memory_engine.compactors.extractive.agenda import TALK, Agenda
from memory_engine.compactors.extractive.entries import Entry, EntryKind, Line
from memory_engine.compactors.extractive.structured import ToldRecord, Value
from memory_engine.compactors.extractive.texts import SourceText, source_text
from memory_engine.compactors.extractive.words import VALUE_MARK, Unit, units_of
from memory_engine.compactors.extractive.work import CallOutcome, WorkFact, facts_of, line_form
from memory_engine.core.lazy import regex
from memory_engine.core.slices import Steps
from memory_engine.language.phrases import says_something
from memory_engine.language.sentences import clean

T = TypeVar("T")

NAME_FACTOR = 2.0
COURTESY_FACTOR = 0.25
USED_BONUS = 2.0
NAMED_BONUS = 1.6
SAID_BONUS = 1.4
FIRST_MENTION_BONUS = 1.4
RARITY_EXPONENT = 0.55
CAPITAL_FACTOR = 0.8
SMALL_FACTOR = 0.4
"""Factors, by the case of its first letter, for a word of a structured value that has no digit or symbol."""
NEVER = 1 << 62
ISO_DAY = regex(r"\d{4}-\d{2}-\d{2}")
DAY_CHARS_MAX = 32


class Heard(msgspec.Struct, frozen=True, gc=False):
    """An entry with the facts that its own texts show."""

    entry: Entry
    text: SourceText
    arguments: SourceText
    is_work: bool = False
    """True if it is part of a record of work: its text then counts for nothing else."""


SaidTerm = tuple[str, float, int]
"""Term of a word in speech, its worth there, and the index of the first entry that contains it."""


class TermUsage:
    """Counts over one input: the number of entries that contain each term, and the later use of values."""

    def __init__(self, earlier: Iterable[SourceText] = ()) -> None:
        """Count the texts of earlier lines; `hear` then reads each entry in turn. Linear in their length."""
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
        self._key_worths = _Learned(self._learned_worth)
        for text in earlier:
            self._meet(0, text.terms)
        self.opening = _Worths(self._opening_term)
        """Maps a word to its terms at the beginning of a statement."""
        self.said = _Worths(self._said_term)
        """Maps a word to its terms elsewhere in a statement, where a capital marks a name."""
        self.said_max = _MostWorth(self.said)
        """Maps a word to the maximum worth of its terms anywhere in speech."""
        self.told = _Worths(self._told_term)
        """Maps a word to its terms in a structured value, each with its worth there."""

    def _meet(self, index: int, terms: Iterable[str]) -> None:
        self.frequency.update(terms)
        first = self._first
        first.update(dict.fromkeys(filterfalse(first.__contains__, terms), index))

    def hear(self, index: int, heard: Heard) -> None:
        """Read the next entry, at `index`."""
        kind = heard.entry.kind
        if heard.is_work and kind != "tool_call":
            return
        terms, values = heard.text.words
        if kind == "tool_call":
            more, used = _named_in(heard).words
            self._used |= self._first.keys() & used
            terms = tuple({*terms, *more}) if terms else more
            values |= used
        self._meet(index, terms)
        if kind in ("tool_result", "error"):
            self._in_results.update(values)
            return
        taken_up = self._named if kind == "user" else self._said
        taken_up.update(values)
        self._last_taken_up.update(dict.fromkeys(values, index))

    def learn_keys(self, index: int, records: Iterable[ToldRecord]) -> None:
        """Count, for each key of the result at entry `index`, how many of its values were used later."""
        taken_up = self._last_taken_up
        for record in records:
            self._last_record[record.identity] = index
            self._key_total.update(record.keys)
            for key, value in zip(record.keys, record.values, strict=True):
                if value.term in taken_up and taken_up[value.term] > index:
                    self._key_hits[key] += 1

    def worth_max(self, key: str, value: Value) -> float:
        """Return an upper bound on the worth of a value's words: from its key's worth, its shape, and later use."""
        most = self._key_worths[key, value.prior] * value.worth_max
        if self.taken_up.isdisjoint(value.values):
            return most
        return most * max(map(self.bonus, value.values))

    def key_worth(self, key: str, prior: float) -> float:
        """Return the share of a key's values that were used later, smoothed towards `prior`: between 0.1 and 1."""
        return self._key_worths[key, prior]

    def _learned_worth(self, key: str, prior: float) -> float:
        return 0.1 + 0.9 * (self._key_hits[key] + 2 * prior) / (self._key_total[key] + 2)

    def is_superseded(self, index: int, record: ToldRecord) -> bool:
        """Return True if a later result contains a record of the same identity, which is then the current state."""
        return self._last_record.get(record.identity, index) > index

    @cached_property
    def taken_up(self) -> frozenset[str]:
        """Values that anybody named or said, or that a later call used. Read this only after all entries are heard."""
        return frozenset(self._named | self._used | self._said)

    def _weight(self, unit: Unit, size: float) -> float:
        """Return the worth of covering a term in speech: more for rare, long, specific and reused terms."""
        term = unit.term
        if term in self.frequency:
            size *= self.frequency[term] ** -RARITY_EXPONENT
        return max(size * 2, unit.specificity / 2) * self.bonus(term) if unit.specificity else size

    def _opening_term(self, unit: Unit) -> SaidTerm:
        weight, term = self._weight(unit, unit.size), unit.term
        return term, weight * COURTESY_FACTOR if unit.is_courteous else weight, self._first.get(term, NEVER)

    def _said_term(self, unit: Unit) -> SaidTerm:
        term, weight, first = opening = self._opening_term(unit)
        return (term, weight * NAME_FACTOR, first) if unit.is_capital else opening

    def _told_term(self, unit: Unit) -> tuple[str, float]:
        """Return the worth of a word of a structured value by its own shape and history (about 0.2 to 30)."""
        if unit.specificity:
            return unit.term, unit.specificity * self.bonus(unit.term)
        factor = CAPITAL_FACTOR if unit.is_capital else SMALL_FACTOR
        return unit.term, self._weight(unit, unit.whole_size) * factor

    def bonus(self, term: str) -> float:
        """Return the factor that a value gains because a later call used it, the user named it or speech repeats it."""
        if term not in self.taken_up:
            return 1.0
        factor = USED_BONUS if term in self._used else 1.0
        if term in self._named:
            factor *= NAMED_BONUS
        if term in self._said:
            factor *= SAID_BONUS
        return factor

    def is_only_said(self, term: str) -> bool:
        """Return True if a term is a value that no tool result contains: without the speech, the value is lost."""
        return term[0] == VALUE_MARK and term not in self._in_results


def _named_in(heard: Heard) -> SourceText:
    """Return the part of a call's arguments that names things, without the texts that the call writes."""
    if not heard.is_work:
        return heard.arguments
    asked = heard.arguments.asked
    return source_text(asked.shown if asked.command is None else asked.command.shown)


class _Worths(dict[str, tuple[T, ...]]):
    """Cache of the worths of each word in this input, one per unit of the word."""

    def __init__(self, weigh: Callable[[Unit], T]) -> None:
        super().__init__()
        self._weigh = weigh

    def __missing__(self, word: str) -> tuple[T, ...]:
        found = self[word] = tuple([self._weigh(unit) for unit in units_of(word)])
        return found


class _MostWorth(dict[str, float]):
    """Cache of each word's maximum worth in speech, which it reaches in the first entry that contains its terms."""

    def __init__(self, said: _Worths[SaidTerm]) -> None:
        super().__init__()
        self._said = said

    def __missing__(self, word: str) -> float:
        found = self[word] = sum([worth for _, worth, _ in self._said[word]]) * FIRST_MENTION_BONUS
        return found


class _Learned(dict[tuple[str, float], float]):
    """Cache of the worth of each key's values, by key and prior. Use it only after all entries are heard."""

    def __init__(self, learned: Callable[[str, float], float]) -> None:
        super().__init__()
        self._learned = learned

    def __missing__(self, key: tuple[str, float]) -> float:
        found = self[key] = self._learned(*key)
        return found


class Action(msgspec.Struct, frozen=True, gc=False):
    """A call and its outcome as indexes of entries; -1 if one of them is missing."""

    call: int
    outcome: int

    @property
    def place(self) -> int:
        """The action's index in the input."""
        return self.call if self.call >= 0 else self.outcome


def pair_calls(entries: Sequence[Entry]) -> tuple[Action, ...]:
    """Pair each outcome with the latest open call of its id (ids may repeat), in the order of the calls."""
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


def failed(outcome: Heard) -> bool:
    """Return True if an outcome is an error: by its flag, or by its text."""
    return _has_failed(outcome.entry, outcome.text)


def _has_failed(entry: Entry, text: SourceText) -> bool:
    return entry.failed or entry.kind == "error" or text.tells_failure


FRAME_SHARE, FRAMES_MIN = 0.3, 4
"""Minimum share and number of results that end in similar lines; such lines are a frame."""
FRAME_LINES = 4
"""Maximum number of a result's last lines that can be a frame."""


def _work(entries: Sequence[Entry], actions: Sequence[Action]) -> Steps[dict[Action, tuple[WorkFact, ...]]]:
    """Return the records of the actions that are work on files and commands."""
    ended = [action for action in actions if action.outcome >= 0]
    ends: Counter[str] = Counter()
    for action in ended:
        ends.update(set(map(line_form, _last_lines(entries[action.outcome].text))))
        yield
    frame = frozenset(form for form, times in ends.items() if times >= max(FRAMES_MIN, FRAME_SHARE * len(ended)))
    found: dict[Action, tuple[WorkFact, ...]] = {}
    for action in ended:
        entry = entries[action.outcome]
        text = source_text(_unframed(entry.text, frame))
        call = entries[action.call] if action.call >= 0 else None
        asked = source_text(_asked_before(entries, action) if call is None else call.arguments or call.text).asked
        outcome = CallOutcome(text.output, _has_failed(entry, text), text.printed is None)
        facts = facts_of((call or entry).name, asked, outcome)
        if facts or not (call or text.text):
            found[action] = facts
        yield
    return found


def _last_lines(text: str) -> list[str]:
    lines = text[-600:].rstrip().split("\n")[-FRAME_LINES:]
    return [line for line in lines if not line[:1].isspace() and any(map(str.isalpha, line))]


def _unframed(text: str, frame: Collection[str]) -> str:
    """Remove last lines that most other results share, such as a prompt or the current folder."""
    if not frame or source_text(text).records is not None:
        return text
    kept = text.rstrip().split("\n")
    stop = max(len(kept) - FRAME_LINES, 0)
    while len(kept) > stop and (not kept[-1].strip() or line_form(kept[-1]) in frame):
        kept.pop()
    return "\n".join(kept)


def _asked_before(entries: Sequence[Entry], action: Action) -> str:
    """Return the command that an agent wrote as text, in a fence at the end, for a result that answers no call."""
    before = entries[action.outcome - 1] if action.outcome > 0 else None
    if before is None or before.kind != "assistant":
        return ""
    text = before.text.rstrip()
    if not text.endswith(FENCE):
        return ""
    return text[:-3].rpartition(FENCE)[2].partition("\n")[2].rstrip()


FENCE = "```"


AGENT_KINDS: frozenset[EntryKind] = frozenset(("assistant", "thinking", "tool_call", "tool_result", "error"))
REMARKED_KINDS = TALK | frozenset[EntryKind](("todo",))
SAID_KINDS: frozenset[EntryKind] = frozenset(
    ("user", "assistant", "thinking", "task", "todo", "question", "system", "summary", "notice", "other")
)


class InputReading(msgspec.Struct, frozen=True, gc=False):
    """Facts about the whole input, used to read its entries one by one."""

    entries: Sequence[Entry]
    heard: Sequence[Heard]
    days: Sequence[str]
    """Day of each entry; `""` if it is not known."""
    actions: tuple[Action, ...]
    work: Mapping[Action, tuple[WorkFact, ...]]
    """Records of the actions that are work on files and commands."""
    usage: TermUsage
    agenda: Agenda
    has_agent: bool
    """Whether an agent takes part: its user's words then weigh more than its own."""
    closing: frozenset[int]
    """Indexes of the last thing that each side said: the state of the conversation."""
    last_todo: int
    wordings: Mapping[str, int]
    """Maps a wording (words without names and values) to the number of different statements that have it."""
    names: frozenset[str]
    """Speakers' names, case-folded: the names that a greeting may address."""
    seen: set[str]
    """Sentences seen so far; repetitions weigh less."""


def day_of(at: str) -> str:
    """Return the day of an ISO time, or a date text unchanged."""
    day = clean(at[:DAY_CHARS_MAX]) if at else ""
    return day[:10] if ISO_DAY.match(day) else day


def read_input(entries: Sequence[Entry], earlier: Sequence[Line]) -> Steps[InputReading]:
    """Read the whole input once, so that its parts can be weighed."""
    usage, agenda = TermUsage([source_text(line.text) for line in earlier]), Agenda(entries)
    actions = pair_calls(entries)
    yield
    work = yield from _work(entries, actions)
    at_work = {place for action in work for place in (action.call, action.outcome)}
    heard: list[Heard] = []
    days: list[str] = []
    wordings: Counter[str] = Counter()
    said: set[str] = set()
    for index, entry in enumerate(entries):
        arguments = source_text(entry.arguments if entry.kind == "tool_call" else "")
        one = Heard(entry, source_text(entry.text), arguments, index in at_work)
        usage.hear(index, one)
        yield
        remarks = one.text.remarks if entry.kind in REMARKED_KINDS else ()
        agenda.hear(index, remarks)
        wordings.update([remark.wording for remark in remarks if remark.text not in said])
        said.update([remark.text for remark in remarks])
        heard.append(one)
        days.append(day_of(entry.at))
        yield
    for index, one in enumerate(heard):
        if one.entry.kind in ("tool_result", "error") and not one.is_work:
            usage.learn_keys(index, one.text.records or ())
            yield
    speakers = {entry.speaker for entry in entries if entry.speaker}
    names = frozenset(name.casefold() for speaker in speakers for name in speaker.split())
    yield
    return InputReading(
        entries=entries,
        heard=heard,
        days=days,
        actions=actions,
        work=work,
        usage=usage,
        agenda=agenda,
        has_agent=any(entry.kind in AGENT_KINDS for entry in entries),
        closing=_closing(heard, names),
        wordings=wordings,
        last_todo=max((i for i, entry in enumerate(entries) if entry.kind == "todo"), default=-1),
        names=names,
        seen=set(),
    )


def _closing(heard: Sequence[Heard], names: frozenset[str]) -> frozenset[int]:
    """Return the indexes of the last substantial entries of the last two voices."""
    found: dict[tuple[str, str], int] = {}
    for index in range(len(heard) - 1, -1, -1):
        entry = heard[index].entry
        if entry.kind not in ("user", "assistant", "thinking", "task", "other"):
            continue
        if any(says_something(remark.said, names) for remark in heard[index].text.remarks):
            found.setdefault((entry.kind, entry.speaker), index)
        if len(found) == 2:
            break
    return frozenset(found.values())
