"""What makes an entry relevant: pure functions of texts and times."""

from collections.abc import Mapping

from memory_engine.regex import regex

DAY_US = 24 * 60 * 60 * 1_000_000
RECENCY_POINTS = 0.5
"""What an entry of this very moment gets on top; less the older it is, nothing after a day."""

_SEGMENT = regex(r"[^\W\d_]+|\d+|(?:[^\w\s]|_)+")
_WORD = regex(r"[^\W\d_]+|\d+")
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


def recency_points(timestamp_us: int, now_us: int) -> float:
    """Up to half a point, falling evenly to nothing over a day. What lies ahead counts as now."""
    age_us = max(0, now_us - timestamp_us)
    return RECENCY_POINTS * max(0.0, 1 - age_us / DAY_US)


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


def is_near_duplicate(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether two texts say the same: the same numbers, and nine of ten words."""
    first, second = one.keys(), other.keys()
    if not first or min(len(first), len(second)) < 0.9 * max(len(first), len(second)):
        return False  # most pairs end here: their words need not be looked at
    if {w for w in first if w.isdigit()} != {w for w in second if w.isdigit()}:
        return False
    return len(first & second) >= 0.9 * len(first | second)
