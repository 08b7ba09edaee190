"""Raises the worth of lines about a focus: what the caller asked a summary to keep in detail.

A text is about a focus if it shares terms with it; the rarer a term is in the input, the more it counts. Instructions
count in the same way, but less. Only the ranking changes: all lines still compete for one budget. Open questions, open
calls and to-dos are raised as much as a line that is all about the focus, so that none of them loses its place to one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import log

import msgspec
from msgspec.structs import replace

from memory_engine.compactors.extractive.coverage import LaterDraft, LaterTerms, LineDraft, LinePiece, Terms
from memory_engine.compactors.extractive.entries import Line
from memory_engine.compactors.extractive.gathering import RankedLine
from memory_engine.compactors.extractive.usage import InputReading
from memory_engine.core.sections import ASKED
from memory_engine.core.slices import Steps
from memory_engine.language.identification import function_words
from memory_engine.language.text import fold_case, terms, words

FOCUS_GAIN = 4.0
"""The gain of a line that is all about the focus: what is added to its worth, in multiples of it."""
INSTRUCTIONS_GAIN = 1.0
BESIDE_SHARE = 0.5
"""Share of a text's gain that goes to its neighbours: the other statements of its entry, and the next entry; of
a person's message to an agent, all the agent's work on it."""
COMMON_SHARE = 0.5
"""A term in more than this share of the entries says nothing about what to prefer."""
RANKS_MAX = 3
"""Number of ranks a line of work rises if it is all about the focus: a file that was read then precedes a failure, but
not a failed test or a rule."""
OPEN_SECTIONS = frozenset(("next_steps", "current_state", ASKED))


class Priorities(msgspec.Struct, frozen=True):
    """Topics to keep in detail, in words: of one summary (`focus`), and of all of a thread (`instructions`)."""

    focus: str = ""
    instructions: str = ""

    def __bool__(self) -> bool:
        return bool(self.focus or self.instructions)


NO_PRIORITIES = Priorities()


class _Wanted(msgspec.Struct, frozen=True):
    """The terms of one text that says what to keep, each with its share (0 to 1) of the gain."""

    gain: float
    shares: Mapping[str, float]

    @classmethod
    def of(cls, wanted: Collection[str], gain: float, frequency: Mapping[str, int], entries: int) -> "_Wanted":
        """Weigh terms by their inverse frequency, squared. The rarest has the share 1; absent and common ones none."""
        most = max(1.0, COMMON_SHARE * entries)
        rarity = {term: log(1 + entries / frequency[term]) for term in sorted(wanted) if 0 < frequency[term] <= most}
        rarest = max(rarity.values(), default=1.0)
        return cls(gain if rarity else 0.0, {term: (one / rarest) ** 2 for term, one in rarity.items()})

    def gain_of(self, found: Collection[str]) -> float:
        """Return the gain of a text that holds these terms."""
        return self.gain * min(1.0, sum(share for term, share in self.shares.items() if term in found))


class Lift:
    """Raises drafts and lines. The place of a draft is that of its entry, or -1 for a line of an earlier summary."""

    def __init__(self, reading: InputReading, found: Sequence[Collection[str]], wanted: Sequence[_Wanted]) -> None:
        self._wanted = wanted
        self._terms = frozenset().union(*(one.shares for one in wanted))
        self._own = [self._gain_of(terms) for terms in found]
        self._beside = _neighbour_gains(reading, self._own)
        self._pending = {action.place for action in reading.actions if action.outcome < 0}
        self._most = sum(one.gain for one in wanted)
        for action in reading.actions:
            if min(action.call, action.outcome) >= 0:  # one line shows both, and all of it is about what was called for
                place = action.call
                self._beside[place] = max(self._beside[place], self._own[place])
                self._own[place] = max(self._own[place], self._own[action.outcome])

    def _gain_of(self, found: Collection[str]) -> float:
        return sum(one.gain_of(found) for one in self._wanted) if found else 0.0

    def _gain(self, text: str) -> float:
        return self._gain_of(self._terms.intersection(terms(text)))

    def ranked(self, lines: Sequence[RankedLine]) -> list[RankedLine]:
        """Return lines of work, each raised in rank by how much it is about the focus."""
        return [replace(one, rank=one.rank - RANKS_MAX * self._gain(one.line.text) / self._most) for one in lines]

    def raised(self, place: int, draft: LineDraft | LaterDraft) -> LineDraft | LaterDraft:
        """Return a draft whose pieces are worth more, the more they are about the focus."""
        if not isinstance(draft, LaterDraft):
            return self._raised(place, draft)
        gain = self._most if place in self._pending else max(self._own[place], self._beside[place])
        return LaterDraft(draft.rate_max * (1 + gain), draft.chars_min, lambda: self._raised(place, draft.make()))

    def _raised(self, place: int, draft: LineDraft) -> LineDraft:
        is_open = draft.section in OPEN_SECTIONS
        gains = (self._most if is_open else self._gain_at(place, piece.text) for piece in draft.pieces)
        return replace(draft, pieces=tuple(map(_multiplied, draft.pieces, gains)))

    def _gain_at(self, place: int, text: str) -> float:
        """Return a piece's gain: at most that of its entry, and at least what its neighbours give it."""
        if place < 0:
            return self._gain(text)
        own, beside = self._own[place], self._beside[place]
        return max(min(self._gain(text), own), beside) if own > beside else beside


def _multiplied(piece: LinePiece, gain: float) -> LinePiece:
    if not gain:
        return piece
    factor, weights = 1 + gain, piece.terms
    if isinstance(weights, LaterTerms):
        return replace(piece, terms=_Multiplied(weights.worth_max * factor, weights, factor))
    return replace(piece, terms={term: worth * factor for term, worth in weights.items()})


class _Multiplied(LaterTerms, frozen=True, gc=False):
    """Terms that are weighed later, each worth this number of times as much."""

    later: LaterTerms
    factor: float

    def weighed(self) -> Terms:
        """The terms, each with the worth of covering it."""
        return {term: worth * self.factor for term, worth in self.later.items()}


def lifting(reading: InputReading, earlier: Sequence[Line], priorities: Priorities) -> Steps[Lift | None]:
    """Return what raises the lines about the priorities; `None` if no term of theirs singles out a part of the input.

    Reads every entry once. Texts are compared by the terms that search finds them by.
    """
    focus = _telling_terms(priorities.focus)
    instructions = _telling_terms(priorities.instructions) - focus
    yield
    found: list[frozenset[str]] = []
    frequency: Counter[str] = Counter()
    texts = (" ".join(filter(None, (entry.name, entry.text, entry.arguments))) for entry in reading.entries)
    for text in (*texts, *(line.text for line in earlier)):
        found.append((focus | instructions).intersection(terms(text)))
        frequency.update(found[-1])
        yield
    gains = ((focus, FOCUS_GAIN), (instructions, INSTRUCTIONS_GAIN))
    wanted = [_Wanted.of(of_text, gain, frequency, len(found)) for of_text, gain in gains]
    yield
    return Lift(reading, found[: len(reading.entries)], wanted) if any(one.gain for one in wanted) else None


def _telling_terms(text: str) -> frozenset[str]:
    """Return the terms of a text without those of function words, in every language that has a list of them."""
    without = " ".join(word for word in words(fold_case(text)) if word in function_words())
    return frozenset(terms(text)).difference(terms(without))


def _neighbour_gains(reading: InputReading, own: Sequence[float]) -> list[float]:
    """Return what each entry gains from the entry before it, and with an agent from the message that it works on."""
    found: list[float] = []
    opened = before = 0.0
    for entry, gain in zip(reading.entries, own, strict=True):
        if reading.has_agent and entry.kind in ("user", "task"):
            opened, before = gain, 0.0
        found.append(BESIDE_SHARE * max(opened, before))
        before = gain
    return found
