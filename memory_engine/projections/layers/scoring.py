"""What makes an entry relevant: pure functions of texts and times."""

import re
from collections.abc import Mapping, Sequence
from math import log

from attrs import frozen

from memory_engine.recall.words import STOP_WORDS

DAY_US = 24 * 60 * 60 * 1_000_000
OCCURRENCE_POINTS = 2
APPEARANCE_POINTS = 1
RECENCY_POINTS = 0.5
"""What an entry of this very moment gets on top; less the older it is, nothing after a day."""

_SEGMENT = re.compile(r"[^\W\d_]+|\d+|(?:[^\w\s]|_)+")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_CLITIC = re.compile(r"(?<=\w)['\u2019](?:s|t|d|m|ll|re|ve)\b")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_PREFIX_CHARS_MIN = 3
_STEM_CHARS_MIN = 4
_ENDING_CHARS_MAX = 5


def searched_text(content: str, metadata: str) -> str:
    """What keyword search looks at: content and metadata (JSON), without differences of case."""
    return f"{content}\n{metadata}".casefold()


def query_terms(query: str) -> list[str]:
    """The query at its white space, without differences of case. A term given twice counts twice."""
    return query.casefold().split()


def segments(text: str) -> list[str]:
    """The text cut where letters, digits and other characters meet; white space goes."""
    return _SEGMENT.findall(text)


def words(text: str) -> list[str]:
    """The runs of letters and the runs of digits of a case-folded text."""
    return _WORD.findall(text)


def telling_words(query: str) -> list[str]:
    """The words of a query that say what it is about, each once; all of its words where there are no others.

    A question is mostly made of words like "when did the", and together they would outweigh the one that it asks for.
    """
    found = list(dict.fromkeys(words(_CLITIC.sub(" ", query.casefold()))))
    return [word for word in found if word not in STOP_WORDS] or found


def keyword_points(text: str, terms: Sequence[str]) -> int:
    """For each term two points an occurrence, and one if there is any. `text` is a `searched_text`."""
    points = 0
    for term in terms:
        occurrences = text.count(term)
        if occurrences:
            points += OCCURRENCE_POINTS * occurrences + APPEARANCE_POINTS
    return points


def recency_points(timestamp_us: int, now_us: int) -> float:
    """Up to half a point, falling evenly to nothing over a day. What lies ahead counts as now."""
    age_us = max(0, now_us - timestamp_us)
    return RECENCY_POINTS * max(0.0, 1 - age_us / DAY_US)


def is_unspaced(word: str) -> bool:
    """Whether a word is of a script that puts no spaces between words: its parts must be found inside it."""
    return _UNSPACED.search(word) is not None


def stem(word: str) -> str:
    """The beginning that a word shares with most of its inflections, without rules of any language."""
    return word if len(word) <= _STEM_CHARS_MIN else word[: max(_STEM_CHARS_MIN, min(7, len(word) - 2))]


def inflects(word: str, run: str) -> bool:
    """Whether a run of a text may stand for a word of the query: itself, begun by it, or another form of it."""
    if word == run:
        return True
    if len(word) < _PREFIX_CHARS_MIN or word.isdigit():
        return False
    beginning = stem(word)
    return run.startswith(word) or (run.startswith(beginning) and len(run) <= len(beginning) + _ENDING_CHARS_MAX)


@frozen
class QueryWord:
    """A word of a query and what it weighs: the rarer, the more. `parts` are pairs of an unspaced word."""

    word: str
    idf: float
    parts: tuple[str, ...] = ()

    @staticmethod
    def beginning_of(word: str) -> str:
        """How everything begins that `inflects` may accept for it."""
        return word if word.isdigit() else stem(word)

    def frequency(self, counts: Mapping[str, int]) -> float:
        """How often it comes among the words of a text; another form of it counts half."""
        if self.parts:
            return sum(n * sum(part in word for part in self.parts) for word, n in counts.items()) / len(self.parts)
        exact = counts.get(self.word, 0)
        beginning = self.beginning_of(self.word)
        others = (w for w in counts if w.startswith(beginning) and w != self.word and inflects(self.word, w))
        return exact + 0.5 * sum(counts[other] for other in others)


def idf(found: int, total: int) -> float:
    """How much a word says that stands in `found` of `total` entries; always above zero."""
    return log(1 + (total - found + 0.5) / (found + 0.5))


def bm25(asked: Sequence[QueryWord], counts: Mapping[str, int], average_words: float) -> float:
    """Okapi BM25 (Robertson and Zaragoza 2009), k1 = 1.2, b = 0.5: entries are short, length says little."""
    length = 0.5 + 0.5 * sum(counts.values()) / max(average_words, 1.0)
    score = 0.0
    for word in asked:
        frequency = word.frequency(counts)
        if frequency:
            score += word.idf * frequency * 2.2 / (frequency + 1.2 * length)
    return score


def is_near_duplicate(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether two texts say the same: the same numbers, and nine of ten words."""
    first, second = one.keys(), other.keys()
    if not first or min(len(first), len(second)) < 0.9 * max(len(first), len(second)):
        return False  # most pairs end here: their words need not be looked at
    if {w for w in first if w.isdigit()} != {w for w in second if w.isdigit()}:
        return False
    return len(first & second) >= 0.9 * len(first | second)
