"""The order of the passages that a search has found, with reasons.

A score is a weighted sum of a few signals that must hold in any conversation, each from 0 to 1: the
question's words in a passage, and in the passage together with the end of the one before; the best match
a few passages away; likeness by a model, where there are vectors; other finds in the same session or
section; who speaks, when, whether there is a time where one is asked for. Sums of lists scaled to 0..1
rather than fused ranks: ranks forget how far ahead the first is, and let a weak list drag a strong one
down.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log, sqrt
from operator import add
from typing import Protocol

import msgspec

from memory_engine.language.text import terms
from memory_engine.recall.question import Question
from memory_engine.recall.repetition import REPEATED_TERMS_MIN

SATURATION = 0.9
"""BM25's k1: how soon a term's repetitions stop counting."""
LENGTH_SHARE = 0.5
"""BM25's b: how much a long passage must hold to count as much as a short one."""
TAIL_TERMS = 24
"""Terms from the end of the passage before that are read with a passage: a short answer needs its question."""
FULL_TERMS = 60
"""Terms from which on a longer passage does not tell more."""
_LENGTHS = [log(1 + size) / log(1 + FULL_TERMS) for size in range(FULL_TERMS + 1)]
"""What a length counts, by terms."""
NEARBY_DECAY = 0.7
"""What is left of a match with each further passage between it and the one that may answer."""
GROUP_BEST = 4
"""Other finds of a session or section that show how much it is about the question."""
SCORE_DIGITS = 6


_NOWHERE: Mapping[int, int] = {}


class Candidate(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A passage that may answer. `place` is its own and rises as the log grows; `at_us` microseconds UTC.

    `group` is its session or section, told apart over all that is searched. `terms` are in the
    text's order, without speaker and date. `cosine` is its likeness to the question, if it has a
    vector; `before` the passage before it in its thread (whose own `before` is not read). `beside` are the places of
    the best finds by words or meaning close by, with how many passages after them it stands (before them: less than 0).
    """

    place: int
    kind: str
    role: str
    speaker: str
    at_us: int
    group: int
    terms: Sequence[str]
    cosine: float | None = None
    before: "Candidate | None" = None
    beside: Mapping[int, int] = _NOWHERE


class Statistics(msgspec.Struct, frozen=True):
    """Counts of the searched passages: their number, their average terms, and how many hold each of the question's."""

    passages: int
    average_terms: float
    holding: Mapping[str, int]


class Ranked(msgspec.Struct, frozen=True, gc=False):
    """A passage with its score from 0 to 1 (comparable within one search only).

    `parts` say what each signal has added; their sum is the score but for rounding. `alike` are
    the places of its repetitions, which are not listed themselves.
    """

    place: int
    score: float
    parts: Mapping[str, float]
    alike: tuple[int, ...] = ()


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The weight of each signal; 0 leaves it out. None may be negative.

    Round numbers: chosen on conversations of several kinds, and not finer than these can tell.
    """

    words: float = 0.4
    window: float = 0.7
    nearby: float = 0.3
    meaning: float = 0.5
    group: float = 0.4
    speaker: float = 0.5
    date: float = 0.5
    asked: float = 0.2
    length: float = 0.3
    said: float = 0.4


class Ranker(Protocol):
    """Puts candidates in order."""

    def __call__(
        self, question: Question, candidates: Sequence[Candidate], statistics: Statistics, limit: int
    ) -> list[Ranked]:
        """At most `limit`, best first. The candidates come in any order, each place once."""
        ...


DEFAULT_WEIGHTS = Weights()
WITH_ASSISTANT: Mapping[str, float] = {"meaning": 3.0, "window": 0.5}
"""Factors of weights where a user and an assistant speak: its long answers repeat the words of whatever is asked."""
_AS_THEY_ARE: Mapping[str, float] = {}


def rank(
    question: Question,
    candidates: Sequence[Candidate],
    statistics: Statistics,
    limit: int,
    weights: Weights = DEFAULT_WEIGHTS,
) -> list[Ranked]:
    """The `limit` best candidates, best first, of equal ones the newest. The same input gives the same output."""
    if not candidates or limit < 1:
        return []
    columns = signals(question, candidates, statistics)
    factors = WITH_ASSISTANT if _has_assistant(candidates) else _AS_THEY_ARE
    weighed = {name: getattr(weights, name) * factors.get(name, 1.0) for name in columns}
    whole = sum(weighed.values()) or 1.0
    shares = {name: weight / whole for name, weight in weighed.items()}
    scores = [
        round(sum(parts), SCORE_DIGITS)
        for parts in zip(*([shares[name] * value for value in values] for name, values in columns.items()), strict=True)
    ]
    order = sorted(range(len(candidates)), key=lambda n: (-scores[n], -candidates[n].place))
    kept = _without_repetitions([candidates[n] for n in order], limit)
    row = {candidates[n].place: n for n in order}
    return [
        Ranked(
            place=place,
            score=min(1.0, scores[row[place]]),
            parts={name: round(shares[name] * column[row[place]], SCORE_DIGITS) for name, column in columns.items()},
            alike=tuple(alike),
        )
        for place, alike in kept.items()
    ]


def weighted(weights: Weights) -> Ranker:
    """The built-in ranker with weights of your own."""
    return partial(rank, weights=weights)


def signals(question: Question, candidates: Sequence[Candidate], statistics: Statistics) -> dict[str, list[float]]:
    """Each signal's value from 0 to 1 for each candidate. Signals that say nothing here are left out."""
    names = _speakers(candidates)
    named = _named(question, names, frozenset(c.speaker for c in candidates if c.kind == "tool"))
    found = _WordScores(question, frozenset().union(*(names[speaker] for speaker in named)), statistics)
    words, window = found.scores(candidates)
    columns = {"words": found.trusted(words), "window": found.trusted(window)}
    if any(c.beside for c in candidates):
        columns["nearby"] = _nearby(candidates, columns["window"])
    meaning = _meaning(candidates, columns["words"]) if any(c.cosine is not None for c in candidates) else []
    columns["group"] = _group(candidates, list(map(add, columns["window"], meaning)) if meaning else window)
    has_assistant = _has_assistant(candidates)
    if not has_assistant:  # an assistant's long answers tell less of what a user asks about than a short remark
        columns["length"] = [_LENGTHS[min(len(c.terms), FULL_TERMS)] for c in candidates]
    if named:
        columns["speaker"] = [1.0 if c.speaker in named else 0.0 for c in candidates]
    if question.days or question.spans:
        columns["date"] = question.nearnesses(c.at_us for c in candidates)
    if question.asks_for:
        columns["asked"] = [1.0 if question.may_hold_the_answer(c.terms) else 0.0 for c in candidates]
    settled = question.of_you or not question.to_you
    if settled and not named and has_assistant:
        columns["said"] = [1.0 if (c.role == "assistant") is question.of_you else 0.0 for c in candidates]
    if meaning:
        columns["meaning"] = meaning
    return columns


class _WordScores:
    """The question's words in passages: BM25 of each, alone and after the end of the one before.

    S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, with
    an idf that stays above 0. The names of speakers are left to the signal for speakers.
    """

    def __init__(self, question: Question, names: frozenset[str], statistics: Statistics) -> None:
        sought = [term for term in question.terms if term not in names] or list(question.terms)
        count = statistics.passages
        holding = [min(statistics.holding.get(term, 0), count) for term in sought]
        self._idf = {
            term: log(1 + (count - held + 0.5) / (held + 0.5)) for term, held in zip(sought, holding, strict=True)
        }
        self._any = frozenset(sought)
        self._average = max(1.0, statistics.average_terms)
        self._held: dict[int, dict[str, int]] = {}

    def scores(self, candidates: Sequence[Candidate]) -> tuple[list[float], list[float]]:
        """Each candidate's sum by itself, and with the end of the passage before."""
        words, window = [], []
        average, window_average = self._average, self._average + min(self._average, TAIL_TERMS)
        for candidate in candidates:
            size = len(candidate.terms)
            held = self._counts(candidate)
            words.append(self._sum(held, size / average) if held else 0.0)
            before, tail_size = self._tail(candidate.before)
            if before:
                held = held | {term: count + held.get(term, 0) for term, count in before.items()} if held else before
            window.append(self._sum(held, (size + tail_size) / window_average) if held else 0.0)
        return words, window

    def trusted(self, sums: list[float]) -> list[float]:
        """The sums from 0 to 1: between shares of the greatest sum and shares of the sum of all the question's terms.

        Where even the best passage holds little of the question, passage and question use other words,
        which then say less beside the other signals. Shares of the greatest alone would hide that.
        """
        scale = sqrt(max(sums) * sum(self._idf.values()))
        return [value / scale for value in sums] if scale > 0 else [0.0] * len(sums)

    def _counts(self, candidate: Candidate) -> dict[str, int]:
        """How often a passage holds each sought term, in the question's order, so that sums do not vary."""
        held = self._held.get(candidate.place)
        if held is None:
            passage = candidate.terms
            found = self._any.intersection(passage)
            held = {term: passage.count(term) for term in self._idf if term in found} if found else {}
            self._held[candidate.place] = held
        return held

    def _tail(self, before: Candidate | None) -> tuple[dict[str, int], int]:
        """The same for the end of the passage before, and of how many terms that is."""
        if before is None:
            return {}, 0
        size = len(before.terms)
        if size <= TAIL_TERMS:
            return self._counts(before), size
        tail = before.terms[-TAIL_TERMS:]
        found = self._any.intersection(tail)
        return {term: tail.count(term) for term in self._idf if term in found} if found else {}, TAIL_TERMS

    def _sum(self, held: Mapping[str, int], length: float) -> float:
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length)
        idf = self._idf
        return sum([idf[term] * count / (count + damping) for term, count in held.items()])


def _speakers(candidates: Sequence[Candidate]) -> dict[str, frozenset[str]]:
    """The terms of each speaker's name; a name that only says the role ("user") does not count."""
    speakers = {(c.speaker, c.role) for c in candidates}
    roles = {name for name, role in speakers if name.casefold() == role}
    return {name: frozenset(terms(name)) for name, _ in speakers if name and name not in roles}


def _named(question: Question, names: Mapping[str, frozenset[str]], tools: frozenset[str]) -> frozenset[str]:
    """The people of whom the question has a name, or a part of it, and the tools that it names in full.

    A tool's name consists of everyday words: "is it in stock?" asks about stock, not for every result of
    `check_stock`.
    """
    asked = question.names.union(question.terms)
    named = [one for one, name in names.items() if not asked.isdisjoint(name) and (one not in tools or name <= asked)]
    return frozenset(named)


def _scaled(values: list[float]) -> list[float]:
    """The values as shares of the greatest."""
    greatest = max(values)
    return [value / greatest for value in values] if greatest > 0 else [0.0] * len(values)


def _group(candidates: Sequence[Candidate], matches: list[float]) -> list[float]:
    """Return for each candidate how well the best other candidates of its group match.

    They match by words and, if they have vectors, by meaning. A candidate that matches nothing itself gets a smaller
    share of this, and 0 unless it is a neighbour of a match (`Candidate.beside`).
    """
    values: dict[int, list[float]] = {}
    for candidate, match in zip(candidates, matches, strict=True):
        values.setdefault(candidate.group, []).append(match)
    best = {group: sorted(found, reverse=True)[:GROUP_BEST] for group, found in values.items()}
    sums = {group: sum(found) for group, found in best.items()}
    return _scaled(
        [
            max(0.0, sums[c.group] - match)
            if match
            else (sums[c.group] - best[c.group][0]) * NEARBY_DECAY
            if c.beside
            else 0.0
            for c, match in zip(candidates, matches, strict=True)
        ]
    )


def _has_assistant(candidates: Sequence[Candidate]) -> bool:
    return {"user", "assistant"} <= {c.role for c in candidates}


def _nearby(candidates: Sequence[Candidate], window: list[float]) -> list[float]:
    """The best match close by: an answer may come some turns after the words of its question, or before them."""
    value = {c.place: match for c, match in zip(candidates, window, strict=True) if match}
    return [
        max(
            [value[best] * NEARBY_DECAY ** (abs(far) - 1) for best, far in c.beside.items() if best in value],
            default=0.0,
        )
        if c.beside
        else 0.0
        for c in candidates
    ]


def _meaning(candidates: Sequence[Candidate], words: list[float]) -> list[float]:
    """Likeness by the model, stretched to 0..1; where there is no vector yet, by words."""
    cosines = [c.cosine for c in candidates if c.cosine is not None]
    least, greatest = min(cosines), max(cosines)
    width = greatest - least
    if width <= 0:
        return [0.0] * len(candidates)
    return [
        value if c.cosine is None else (c.cosine - least) / width for c, value in zip(candidates, words, strict=True)
    ]


def _without_repetitions(ordered: Sequence[Candidate], limit: int) -> dict[int, list[int]]:
    """The first `limit` places in order, each with the later places of its near-duplicates by the same speaker."""
    kept: dict[int, list[int]] = {}
    first: dict[tuple[str, str, str, tuple[str, ...]], int] = {}
    for candidate in ordered:
        said = (candidate.kind, candidate.role, candidate.speaker, tuple(candidate.terms))
        place = first.setdefault(said, candidate.place) if len(said[3]) >= REPEATED_TERMS_MIN else candidate.place
        if place != candidate.place:
            kept.get(place, []).append(candidate.place)
        elif len(kept) < limit:
            kept[place] = []
    return kept
