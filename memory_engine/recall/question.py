"""Reading a question: the people it names, the days it means, the kind of thing it asks for."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.lists import word_lists
from memory_engine.language.rough import begins_sentence
from memory_engine.language.text import terms
from memory_engine.recall.dates import Day, Stretch, listed_spans, named_days, relative_spans, within

TERMS_MAX = 32
TEXT_CHARS_MAX = 4_096
"""Characters of a question that are read for days, names and the thing it asks for."""

_ASKED = (
    (
        "number",
        regex(
            r"\bhow (?:many|much|often|old|far|tall|big|large|high)\b"
            r"|\b(?:what|which) (?:number|percentage|price|amount|total)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "time",
        regex(
            r"\b(?:when|how long)\b|\b(?:what|which) (?:time|date|day|week|month|year|season|weekend)\b", re.IGNORECASE
        ),
    ),
)
_OF_YOU = regex(
    r"\b(?:did|had|have|were) you\b(?! (?:remember|recall|know|find|able|aware))"
    r"|\byou(?:'ve| have| had| also| once| first| just)* (?:said|told|gave|given|wrote|written|shown"
    r"|(?:suggest|advis|recommend|propos|mention|explain|describ|list|answer|provid|offer|warn|show|promis|call|nam|count"
    r"|calculat|quot)ed)\b"
    r"|\b(?:the|an|my) (?:assistant|chatbot|ai)\b|\b(?:did|had|has) the agent\b",
    re.IGNORECASE,
)
_TO_YOU = regex(r"\b(?:would|do|does|should|might|are) you\b(?! (?:know|remember|recall))|\byour\b", re.IGNORECASE)
"""May ask for earlier advice, or for new advice based on the user's own words."""
_NAME = regex(r"\b[^\W\d_a-z][^\W\d_]+")


@cache
def _telling(asked_for: str) -> frozenset[str]:
    """Terms of which a passage that answers is likely to hold one."""
    return frozenset(terms(" ".join(word_lists("memory_engine.recall")[asked_for])))


class Question(msgspec.Struct, frozen=True):
    """A question, read. `terms` are distinct and in the question's order, at most 32.

    `names` are the terms of words written with a capital inside a sentence. `days` are the dates
    it names; `spans` the relative times ("last week") as (from, until) in microseconds UTC; `listed`
    the times, ends included, of which every passage may be meant.
    `asks_for` is "time", "number" or "". `of_you` says that it asks for what an assistant has
    said, `to_you` that it may ask for that. `further` are terms by which passages become candidates beside `terms`.
    """

    text: str
    terms: tuple[str, ...]
    names: frozenset[str] = frozenset()
    days: tuple[Day | Stretch, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    listed: tuple[tuple[int, int], ...] = ()
    asks_for: str = ""
    of_you: bool = False
    to_you: bool = False
    further: tuple[str, ...] = ()

    def nearness(self, at_us: int) -> float:
        """How well a time fits the best of the days and spans, from 0 to 1; 0 where the question names none.

        All times of a day (UTC) fit alike.
        """
        days = max((day.nearness(at_us) for day in self.days), default=0.0)
        return max(days, max((within(span, at_us) for span in self.spans), default=0.0))

    def may_hold_the_answer(self, passage: Sequence[str]) -> bool:
        """Whether a passage (its terms) holds a thing of the kind that the question asks for, if it asks for any."""
        if not self.asks_for:
            return False
        if not _telling(self.asks_for).isdisjoint(passage):
            return True
        if self.asks_for != "number" or "".join(passage).isalpha():
            return False
        return any(term[0].isdigit() for term in passage)


def _names(text: str) -> Iterator[str]:
    """The words with a capital that begin no sentence."""
    return (name.group() for name in _NAME.finditer(text) if not begins_sentence(text, name.start()))


def read_question(text: str, *, now_us: int | None = None) -> Question:
    """Read a question. Relative times are resolved in UTC where `now_us` (microseconds) is given.

    Any string will do; the same string and time give the same question.
    """
    read = text[:TEXT_CHARS_MAX]
    days, spans = named_days(read), relative_spans(read, now_us)
    return Question(
        text=text,
        terms=tuple(dict.fromkeys(terms(text)))[:TERMS_MAX],
        names=frozenset(term for name in _names(read) for term in terms(name)),
        days=days,
        spans=spans,
        listed=listed_spans(days, spans, now_us) if now_us is not None and (days or spans) else (),
        asks_for=next((kind for kind, pattern in _ASKED if pattern.search(read)), ""),
        of_you=_OF_YOU.search(read) is not None,
        to_you=_TO_YOU.search(read) is not None,
    )
