"""The order of the passages that a search has found, with reasons.

A score is a weighted sum of a few signals that must hold in any conversation, each from 0 to 1: how much of
the question a passage holds, alone, with the end of the one before, and with those around it; the best match
a few passages away; likeness by a model, where there are vectors; other finds in the same session or
section; who speaks, when, whether there is a time where one is asked for. Sums of lists scaled to 0..1
rather than fused ranks: ranks forget how far ahead the first is, and let a weak list drag a strong one
down.

How far words decide depends on the question. An identifier or a rare name is in few passages, which are about it.
Words that are everywhere leave doubt, and then likeness, brevity and the speaker count more. Nothing counts by
role alone: friends, an assistant's chats and an agent's tools are ranked alike.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log, sqrt
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import msgspec

from memory_engine.core.lazy import StandIn, lazy_module
from memory_engine.language.text import terms
from memory_engine.recall.question import Question
from memory_engine.recall.repetition import REPEATED_TERMS_MIN
from memory_engine.store.passages import PLACES_BITS

if TYPE_CHECKING:
    from memory_engine.recall import several
else:
    several = lazy_module("memory_engine.recall.several")

SATURATION = 0.9
"""BM25's k1: how soon a term's repetitions stop counting."""
LENGTH_SHARE = 0.5
"""BM25's b: how much a long passage must hold to count as much as a short one."""
TAIL_TERMS = 24
"""Terms from the end of the passage before that are read with a passage: a short answer needs its question."""
BRIEF_TERMS, LONG_TERMS = 20, 60
"""Talk of this number of terms is brief, or long: a long answer repeats the words of any question."""
NEARBY_DECAY = 0.7
"""The share of a match that remains with each further passage between it and the one that may answer."""
AROUND_EVENTS = 4
"""Events before and after a passage whose words are read with it."""
AROUND_PASSAGES = 8
"""The most candidates of these on either side: one event may hold thousands, as a document does."""
AROUND_DECAY = 0.8
"""The weight of a term that is a number of events away, to the power of their number."""
_AROUND = [AROUND_DECAY ** max(1, far) for far in range(AROUND_EVENTS + 1)]
CERTAIN, DOUBTFUL = 0.7, 0.3
"""How rare the question's two rarest terms are, on average (1: in one passage), where words leave no doubt; and all."""
BESIDE_WORDS = 3.0
"""How much more the other signals count if the words leave all in doubt."""
GROUP_BEST = 4
"""Other finds of a session or section that show how much it is about the question."""
GROUP_MEANING = 0.3
"""The weight of likeness by a model there, where a match by words counts 1: talk on one matter is all rather alike."""
SCORE_DIGITS = 6


_NOWHERE: Mapping[int, int] = {}


class Candidate(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A passage that may answer. `place` is its own and rises as the log grows; `at_us` microseconds UTC.

    `group` is its session or section, distinct over all that is searched. `terms` are in the
    text's order, without speaker and date. `cosine` is its likeness to the question, if it has a
    vector; `before` the passage before it in its thread (whose own `before` is not read). `beside` are the places of
    the best finds by words or meaning nearby, each with how many passages later this one is (earlier: less than 0).
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

    Round numbers: chosen on conversations of several kinds, and no finer than these can show. Those of `meaning`,
    `brief` and `speaker` rise where the question's words leave doubt.
    """

    words: float = 0.5
    window: float = 0.7
    around: float = 0.8
    nearby: float = 0.3
    group: float = 0.4
    meaning: float = 0.4
    brief: float = 0.4
    speaker: float = 0.6
    date: float = 0.5
    asked: float = 0.2


class Ranker(Protocol):
    """Puts candidates in order."""

    def __call__(
        self, question: Question, candidates: Sequence[Candidate], statistics: Statistics, limit: int
    ) -> list[Ranked]:
        """At most `limit`, best first. The candidates come in any order, each place once."""
        ...


DEFAULT_WEIGHTS = Weights()
_BESIDE_WORDS = frozenset({"meaning", "brief", "speaker"})


def rank(
    question: Question,
    candidates: Sequence[Candidate],
    statistics: Statistics,
    limit: int,
    weights: Weights = DEFAULT_WEIGHTS,
) -> list[Ranked]:
    """The `limit` best candidates, best first, of equal ones the newest. The same input gives the same output."""
    candidates = [c for c in candidates if not _is_empty_call(c)]
    if not candidates or limit < 1:
        return []
    columns = signals(question, candidates, statistics)
    factor = 1 + BESIDE_WORDS * doubt(question, statistics)
    weighed = {name: getattr(weights, name) * (factor if name in _BESIDE_WORDS else 1.0) for name in columns}
    whole = sum(weighed.values()) or 1.0
    shares = {name: weight / whole for name, weight in weighed.items()}
    scores: list[float] = [
        round(sum(parts), SCORE_DIGITS)
        for parts in zip(*([shares[name] * value for value in values] for name, values in columns.items()), strict=True)
    ]
    order = sorted(range(len(candidates)), key=lambda n: (-scores[n], -candidates[n].place))
    if question.several:
        order = _spread(candidates, order, scores, columns)
        shares["spread"] = 1.0
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


def _spread(
    candidates: Sequence[Candidate], order: Sequence[int], scores: list[float], columns: dict[str, list[float]]
) -> list[int]:
    """Return the order of the answers to a question for several things, and take what that costs off the scores."""
    left = several.spread([candidates[n] for n in order], [scores[n] for n in order])
    lost = columns["spread"] = [0.0] * len(candidates)
    for at, score in left:
        n = order[at]
        lost[n] = score - scores[n]
        scores[n] = round(score, SCORE_DIGITS)
    return [order[at] for at, _ in left]


def weighted(weights: Weights) -> Ranker:
    """The built-in ranker with weights of your own."""
    return partial(rank, weights=weights)


def doubt(question: Question, statistics: Statistics) -> float:
    """How little the question's words distinguish passages, from 0 to 1: 0 if it names an identifier that is there.

    Else it goes by the two of its words that are in the fewest passages.
    """
    holding = statistics.holding
    if names_identifier(question, statistics):
        return 0.0
    rarest = sorted(filter(None, map(holding.get, question.terms)))[:2]
    most = _idf(statistics.passages, 1)
    rarity = sum(_idf(statistics.passages, held) for held in rarest) / (2 * most)
    return min(1.0, max(0.0, (CERTAIN - rarity) / (CERTAIN - DOUBTFUL)))


def names_identifier(question: Question, statistics: Statistics) -> bool:
    """Whether the question names an identifier, a path or a long number that is there."""
    return any(statistics.holding.get(term) for term in question.exact)


def weights_of_terms(
    question: Question, candidates: Sequence[Candidate], statistics: Statistics
) -> Mapping[str, float]:
    """How rare each of the question's terms is, without the names of the speakers that it names."""
    names = _speakers(candidates)
    named = _named_entities(question, names, frozenset(c.speaker for c in candidates if c.kind == "tool"))
    return _weights(question, frozenset().union(*(names[speaker] for speaker in named)), statistics)


def _weights(question: Question, names: frozenset[str], statistics: Statistics) -> dict[str, float]:
    sought = [term for term in question.terms if term not in names] or list(question.terms)
    return {term: _idf(statistics.passages, statistics.holding.get(term, 0)) for term in sought}


def is_built_in(ranker: Ranker) -> bool:
    """Whether a ranker is the built-in one, with any weights."""
    function = ranker.func if isinstance(ranker, partial) else ranker
    return (function.original if isinstance(function, StandIn) else function) is rank


def _idf(passages: int, holding: int) -> float:
    """The weight of a term in a number of the passages; it is always above 0."""
    return log(1 + (passages - min(holding, passages) + 0.5) / (holding + 0.5))


def signals(question: Question, candidates: Sequence[Candidate], statistics: Statistics) -> dict[str, list[float]]:
    """Each signal's value from 0 to 1 for each candidate. Signals that say nothing here are left out."""
    names = _speakers(candidates)
    named = _named_entities(question, names, frozenset(c.speaker for c in candidates if c.kind == "tool"))
    found = _WordScores(question, frozenset().union(*(names[speaker] for speaker in named)), statistics)
    window = found.windows(candidates)
    columns = {
        "words": found.shares(candidates),
        "window": found.trusted(window),
        "around": found.shares_around(candidates),
    }
    if any(c.beside for c in candidates):
        columns["nearby"] = _nearby(candidates, columns["window"])
    meaning = _meaning(candidates, columns["words"]) if any(c.cosine is not None for c in candidates) else []
    columns["group"] = _group_support(candidates, _match_strengths(columns["window"], meaning) if meaning else window)
    columns["brief"] = [_brevity(c) for c in candidates]
    if spoken := _spoken(question, candidates, statistics, named):
        columns["speaker"] = spoken
    if question.days or question.spans:
        columns["date"] = question.nearnesses(c.at_us for c in candidates)
    if question.asks_for:
        columns["asked"] = [1.0 if question.may_hold_the_answer(c.terms) else 0.0 for c in candidates]
    if meaning:
        columns["meaning"] = meaning
    return columns


def _brevity(candidate: Candidate) -> float:
    """1 for a brief remark, 0 for a long answer; what was not said, such as a tool's result, is as long as its data."""
    if candidate.kind != "message":
        return 1.0
    return min(1.0, max(0.0, (LONG_TERMS - len(candidate.terms)) / (LONG_TERMS - BRIEF_TERMS)))


def _spoken(
    question: Question, candidates: Sequence[Candidate], statistics: Statistics, named: frozenset[str]
) -> list[float]:
    """How far each candidate's speaker is the one asked for: by name, as "you", or, where words leave doubt, as "I"."""
    if named:
        return [1.0 if c.speaker in named else 0.0 for c in candidates]
    if not {"user", "assistant"} <= {c.role for c in candidates}:
        return []
    if question.of_you:
        return [1.0 if c.role == "assistant" else 0.0 for c in candidates]
    if question.of_me and not question.to_you and (share := doubt(question, statistics)):
        return [share if c.role == "user" else 0.0 for c in candidates]
    return []


class _WordScores:
    """How much of the question passages hold, each of its terms by how rare it is.

    `windows` is BM25: S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, with
    an idf that stays above 0. The names of speakers are left to the signal for speakers.
    """

    def __init__(self, question: Question, names: frozenset[str], statistics: Statistics) -> None:
        self._idf = _weights(question, names, statistics)
        self._whole = sum(self._idf.values()) or 1.0
        self._any = frozenset(self._idf)
        self._average = max(1.0, statistics.average_terms)
        self._held: dict[int, dict[str, int]] = {}

    def shares(self, candidates: Sequence[Candidate]) -> list[float]:
        """The share of the question that each candidate holds."""
        idf, whole = self._idf, self._whole
        return [sum([idf[term] for term in self._counts(c)]) / whole for c in candidates]

    def shares_around(self, candidates: Sequence[Candidate]) -> list[float]:
        """The share that each candidate holds together with those a few events away in its session or section.

        A term that only these hold counts less the further away they are, and the longer: an answer follows the
        words of its question, and a long text holds many words.
        """
        idf, whole = self._idf, self._whole
        shares: dict[int, float] = {}
        order = sorted(candidates, key=attrgetter("place"))
        seqs = [one.place >> PLACES_BITS for one in order]
        counts = [self._counts(one) for one in order]
        first = 0
        for n, one in enumerate(order):
            while seqs[n] - seqs[first] > AROUND_EVENTS:
                first += 1
            held = dict.fromkeys(counts[n], 1.0)
            for m in range(max(first, n - AROUND_PASSAGES), min(len(order), n + AROUND_PASSAGES + 1)):
                far = abs(seqs[m] - seqs[n])
                if far > AROUND_EVENTS:
                    break
                if not (beside := counts[m]) or order[m].group != one.group:
                    continue
                share = _AROUND[far] * min(1.0, TAIL_TERMS / len(order[m].terms))
                for term in beside:
                    if share > held.get(term, 0.0):
                        held[term] = share
            shares[one.place] = sum([idf[term] * share for term, share in held.items()]) / whole if held else 0.0
        return [shares[c.place] for c in candidates]

    def windows(self, candidates: Sequence[Candidate]) -> list[float]:
        """Each candidate's sum with the end of the passage before: a short answer needs its question."""
        window = []
        average = self._average + min(self._average, TAIL_TERMS)
        for candidate in candidates:
            held = self._counts(candidate)
            before, tail_size = self._tail(candidate.before)
            if before:
                held = held | {term: count + held.get(term, 0) for term, count in before.items()} if held else before
            window.append(self._sum(held, (len(candidate.terms) + tail_size) / average) if held else 0.0)
        return window

    def trusted(self, sums: list[float]) -> list[float]:
        """The sums from 0 to 1: between shares of the greatest sum and shares of the sum of all the question's terms.

        Where even the best passage holds little of the question, passage and question use other words,
        which then say less than the other signals. Shares of the greatest alone would hide that.
        """
        scale = sqrt(max(sums) * self._whole)
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


def _named_entities(question: Question, names: Mapping[str, frozenset[str]], tools: frozenset[str]) -> frozenset[str]:
    """The people of whom the question has a name, or a part of it, and the tools that it names in full.

    A tool's name consists of everyday words: "is it in stock?" asks about stock, not for every result of
    `check_stock`, and "look it up" for none of `lookup`.
    """
    asked = question.names.union(question.terms)
    named = [
        one
        for one, name in names.items()
        if not asked.isdisjoint(name) and (one not in tools or (len(name) > 1 and name <= asked))
    ]
    return frozenset(named)


def _scaled(values: list[float]) -> list[float]:
    """The values as shares of the greatest."""
    greatest = max(values)
    return [value / greatest for value in values] if greatest > 0 else [0.0] * len(values)


def _group_support(candidates: Sequence[Candidate], matches: list[float]) -> list[float]:
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


def _match_strengths(window: list[float], meaning: list[float]) -> list[float]:
    """How well each candidate matches by words and by meaning."""
    return [by_words + GROUP_MEANING * by_meaning for by_words, by_meaning in zip(window, meaning, strict=True)]


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


def _is_empty_call(candidate: Candidate) -> bool:
    """Whether it is a call of a tool without arguments: its name answers nothing."""
    is_call = candidate.kind == "tool" and candidate.role == "assistant"
    return is_call and frozenset(terms(candidate.speaker)).issuperset(candidate.terms)


def _without_repetitions(ordered: Sequence[Candidate], limit: int) -> dict[int, list[int]]:
    """The first `limit` places in order, each with the later places of its near-duplicates by the same speaker."""
    kept: dict[int, list[int]] = {}
    first: dict[object, int] = {}
    for candidate in ordered:
        said = (candidate.kind, candidate.role, candidate.speaker, tuple(candidate.terms))
        is_short = len(candidate.terms) < REPEATED_TERMS_MIN
        place = candidate.place if is_short else first.setdefault(said, candidate.place)
        if place != candidate.place:
            kept.get(place, []).append(candidate.place)
        elif len(kept) < limit:
            kept[place] = []
    return kept
