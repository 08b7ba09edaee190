"""Extraction of the part of a long passage that is most relevant to a question."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from memory_engine.core.tokens import TokenCounter
from memory_engine.language.rough import rough_spans
from memory_engine.language.text import terms

PART_CHARS_MAX = 240
"""Maximum characters of a part: a longer sentence or line is split at blanks, so that some part always fits."""
LEFT_OUT = "[…]"
_TRIES_MAX = 8


def excerpt(text: str, query_terms: frozenset[str], tokens: int, counter: TokenCounter) -> str:
    """Return the sentences around those with most of the query's terms, in at most `tokens`; empty if none fits.

    Omissions are marked. A term weighs less the more sentences contain it.
    """
    spans = _sentence_spans(text)
    held = [query_terms.intersection(terms(text[start:end])) for start, end in spans]
    having = Counter(chain.from_iterable(held))
    weights = [sum(1 / having[term] for term in sorted(one)) for one in held]
    chars = len(text) * tokens // max(1, counter.count(text))
    for _ in range(_TRIES_MAX):
        start, end = _grow_span(spans, weights, chars)
        if start == end:
            return ""
        shown = f"{LEFT_OUT + ' ' if start else ''}{text[start:end]}{' ' + LEFT_OUT if end < len(text) else ''}"
        if counter.count(shown) <= tokens:
            return shown
        chars = min(chars - 1, chars * 4 // 5, end - start)
    return ""


def _sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of sentences and lines, in order, none longer than `PART_CHARS_MAX`."""
    found: list[tuple[int, int]] = []
    for first, end in rough_spans(text):
        start = first
        while end - start > PART_CHARS_MAX:
            blank = text.rfind(" ", start + PART_CHARS_MAX // 2, start + PART_CHARS_MAX)
            cut = blank + 1 if blank > 0 else start + PART_CHARS_MAX
            found.append((start, cut))
            start = cut
        found.append((start, end))
    return found


def _grow_span(spans: Sequence[tuple[int, int]], weights: Sequence[float], chars: int) -> tuple[int, int]:
    """Return the span of the weightiest part and as many neighbours as fit, weightier first; empty if none fits."""
    fitting = [n for n, (start, end) in enumerate(spans) if end - start <= chars]
    if not fitting:
        return 0, 0
    first = last = max(fitting, key=lambda n: (weights[n], -n))
    while True:
        beside = []
        if last + 1 < len(spans) and spans[last + 1][1] - spans[first][0] <= chars:
            beside.append((weights[last + 1], 1, first, last + 1))
        if first > 0 and spans[last][1] - spans[first - 1][0] <= chars:
            beside.append((weights[first - 1], 0, first - 1, last))
        if not beside:
            return spans[first][0], spans[last][1]
        _, _, first, last = max(beside)
