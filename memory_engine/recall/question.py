"""Analysis of a question: the people and days it names, and the kind of thing it asks for."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, tzinfo
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.clock import DAY_US, local_day, midnight_us
from memory_engine.core.lazy import lazy_module, lazy_modules, regex
from memory_engine.language.lists import word_lists
from memory_engine.language.rough import begins_sentence
from memory_engine.language.text import fold_case, is_unspaced, terms, words

if TYPE_CHECKING:
    from memory_engine.language import dates, dates_relative
    from memory_engine.language.dates import Day, Stretch
    from memory_engine.recall import several
else:
    several = lazy_module("memory_engine.recall.several")
    dates, dates_relative = lazy_modules("memory_engine.language", "dates dates_relative")

TERMS_MAX = 32
TEXT_CHARS_MAX = 4_096
"""Number of characters of a question that are searched for days, names and the kind of thing it asks for."""
AFTER_DAYS = 14
"""Days after an event in which people still talk about it."""
YEARS_BACK = 10
"""Number of years, including the current one, in which a date without a year is searched."""
LISTED_DAYS_MAX = 31
"""Maximum days of a time span whose passages are all candidates."""

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
"""Questions that may ask for earlier advice, or for new advice based on the user's own words."""
_EXACT = regex(r"\d{3}|\d[^\W\d_]|[^\W\d_]\d|[^\W_][_/@][^\W_]|[^\W\d_A-Z][A-Z]")
"""Properties that make a word an identifier, a path or a long number: such words are never chance."""
_NAME = regex(r"\b[^\W\d_a-z][^\W\d_]+")


@cache
def _telling(asked_for: str) -> frozenset[str]:
    """Return terms of which an answering passage probably contains one."""
    calendar = [*dates.all_names("months", "en"), *dates.all_names("weekdays", "en")] if asked_for == "time" else []
    return frozenset(terms(" ".join([*word_lists("memory_engine.recall")[asked_for], *calendar])))


class Question(msgspec.Struct, frozen=True):
    """An analysed question. `terms` are distinct and in the question's order, at most 32.

    `names` are the terms of capitalized words inside a sentence. `days` are the dates that the question names; `spans`
    are its relative times ("last week") as (from, until) in microseconds UTC; `listed` are the time spans, ends
    included, of which every passage may be meant. Days begin and end in `zone`. `asks_for` is "time", "number" or "".
    `several` is True if it asks for several things. `of_you` is True if it asks for what an assistant has said,
    `to_you` if it may ask for that, `of_me` if it is about who asks. `exact` are the terms of identifiers, paths and
    long numbers in it. `further` are terms by which passages become candidates in addition to `terms`.
    """

    text: str
    terms: tuple[str, ...]
    names: frozenset[str] = frozenset()
    days: "tuple[Day | Stretch, ...]" = ()
    spans: tuple[tuple[int, int], ...] = ()
    listed: tuple[tuple[int, int], ...] = ()
    asks_for: str = ""
    several: bool = False
    of_you: bool = False
    to_you: bool = False
    of_me: bool = False
    exact: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    zone: tzinfo = UTC

    def nearness(self, at_us: int) -> float:
        """Return how well a time fits the best of the days and spans, from 0 to 1; 0 if the question names none.

        All times of a day fit equally well.
        """
        return self._nearness_of(local_day(at_us, self.zone))

    def nearnesses(self, times_us: Iterable[int]) -> list[float]:
        """Return the nearness of each time."""
        days = [local_day(at_us, self.zone) for at_us in times_us]
        nearness = {day: self._nearness_of(day) for day in set(days)}
        return [nearness[day] for day in days]

    def _nearness_of(self, at: date) -> float:
        best = max((_nearness(day, at) for day in self.days), default=0.0)
        if not self.spans:
            return best
        at_us = midnight_us(at.toordinal(), self.zone)
        return max(best, *(_span_match(span, at_us) for span in self.spans))

    def may_hold_the_answer(self, passage: Sequence[str]) -> bool:
        """Return True if a passage (its terms) contains a thing of the kind that the question asks for, if any."""
        if not self.asks_for:
            return False
        if not _telling(self.asks_for).isdisjoint(passage):
            return True
        if self.asks_for != "number" or "".join(passage).isalpha():
            return False
        return any(term[0].isdigit() for term in passage)


def _capitalized_names(text: str) -> Iterator[str]:
    """Return the capitalized words that do not begin a sentence."""
    return (name.group() for name in _NAME.finditer(text) if not begins_sentence(text, name.start()))


def read_question(text: str, *, now_us: int | None = None, zone: tzinfo = UTC) -> Question:
    """Read a question. Relative times are resolved in `zone` if `now_us` (microseconds) is given.

    Accepts any string. The same string, time and zone give the same question.
    """
    read = text[:TEXT_CHARS_MAX]
    today = None if now_us is None else local_day(now_us, zone)
    days, relative = dates_relative.read_dates(read, today)
    return Question(
        text=text,
        terms=tuple(dict.fromkeys(terms(text)))[:TERMS_MAX],
        names=frozenset(term for name in _capitalized_names(read) for term in terms(name)),
        days=days,
        spans=tuple((_starts_us(first, zone), _ends_us(last, zone)) for first, last in relative),
        listed=() if today is None else _day_spans(days, relative, today, zone),
        asks_for=next((kind for kind, pattern in _ASKED if pattern.search(read)), ""),
        several=several.asks_for_several(read),
        of_you=_OF_YOU.search(read) is not None,
        to_you=_TO_YOU.search(read) is not None,
        of_me=_has_any(fold_case(read), "of_me"),
        exact=tuple(dict.fromkeys(term for word in read.split() if _EXACT.search(word) for term in terms(word))),
        zone=zone,
    )


def _has_any(folded: str, name: str) -> bool:
    """Return True if a text has a word of a list: in scripts without blanks, anywhere."""
    sought = word_lists("memory_engine.recall")[name]
    return any(any(one in word for one in sought) if is_unspaced(word) else word in sought for word in words(folded))


def _nearness(named: "Day | Stretch", at: date) -> float:
    """Return how well a day fits a named one, from 0 to 1: people talk about an event on its day and soon after."""
    if isinstance(named, dates.Day):
        if named.weekday:
            return 0.5 if at.isoweekday() == named.weekday else 0.0
        if named.year and named.year != at.year and not (named.month == 12 and at.year == named.year + 1):
            return 0.0
        if not named.month:
            return 0.5
        if not named.day:
            after = (at.month - named.month) % 12
            return 1.0 if not after else 0.5 if after == 1 and at.day <= AFTER_DAYS else 0.0
    year = at.year - 1 if at.month < named.month - 6 else at.year  # people still talk about December in spring
    if (stretch := named.stretch(year)) is None:
        return 0.0
    first, last = stretch
    before, after = (first - at).days, (at - last).days
    if before <= 0 and after <= 1:
        return 1.0
    return 0.7 if before <= 1 and after <= 7 else 0.4 if before <= 7 and after <= 21 else 0.0


def _span_match(span: tuple[int, int], at_us: int) -> float:
    """Return 1 for a time within a span, 0.5 for a time in the days after it, else 0."""
    start, end = span
    return 1.0 if start <= at_us < end else 0.5 if end <= at_us < end + AFTER_DAYS * DAY_US else 0.0


def _day_spans(
    days: "Iterable[Day | Stretch]", relative: Iterable[tuple[date, date]], today: date, zone: tzinfo
) -> tuple[tuple[int, int], ...]:
    """Return the spans (from, until; microseconds) whose passages are all candidates: named days and the day after.

    A date without a year is searched in the last ten years.
    """
    found: list[tuple[date, date]] = []
    for day in days:
        years = (day.year,) if day.year else range(today.year, max(0, today.year - YEARS_BACK), -1)
        found += filter(None, map(day.stretch, years))
    listed = [(first, last) for first, last in (*found, *relative) if (last - first).days < LISTED_DAYS_MAX]
    spans = ((_starts_us(first, zone), _ends_us(last, zone, later=1) - 1) for first, last in listed)
    return tuple(dict.fromkeys(spans))


def _starts_us(day: date, zone: tzinfo) -> int:
    return midnight_us(day.toordinal(), zone)


def _ends_us(day: date, zone: tzinfo, *, later: int = 0) -> int:
    """Return the end of a day, or of the day `later` days after it."""
    return midnight_us(day.toordinal() + 1 + later, zone)
