"""Reading a question: the people it names, the days it means, the kind of thing it asks for."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.core.text import terms, word_lists

TERMS_MAX = 32
AFTER_DAYS = 14
"""Days after an event in which people still talk about it."""
TEXT_CHARS_MAX = 4_096
"""Characters of a question that are read for days, names and the thing it asks for."""

_MONTHS: Sequence[str] = (
    "january february march april may june july august september october november december"
    " jan feb mar apr _ jun jul aug sep oct nov dec"
).split()
_WEEKDAYS: Sequence[str] = "monday tuesday wednesday thursday friday saturday sunday".split()
_MONTH_NAMES = "|".join(sorted((name for name in _MONTHS if name != "_"), key=len, reverse=True))
_MONTH = rf"(?P<month>{_MONTH_NAMES}|sept)\.?"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DATES = tuple(
    regex(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<year>(?:19|20)\d\d)-(?P<month_number>[01]?\d)-(?P<day>[0-3]?\d)\b",
        rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}\b(?:,?\s+{_YEAR}\b)?",
        rf"\b{_MONTH}\s+{_DAY}\b(?:,?\s+{_YEAR}\b)?",
        rf"\b{_MONTH}\b(?:,?\s+(?:of\s+)?{_YEAR}\b)?",
        rf"\b{_YEAR}\b",
    )
)
_MAY_THE_VERB = regex(r"\bmay\b")
_AGO = regex(
    r"\b(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|a few|a couple of)\s+"
    r"(?P<unit>day|week|month|year)s?\s+ago\b",
    re.IGNORECASE,
)
_COUNTS = {
    name: count
    for count, names in enumerate("_|a an one|two|three|four|five|six|seven|eight|nine|ten".split("|"))
    for name in names.split()
} | {"a few": 3, "a couple of": 2}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_LAST = regex(r"\b(?:last|past|previous)\s+(?P<unit>week|month|year)\b", re.IGNORECASE)
_THIS = regex(r"\bthis\s+(?P<unit>week|month|year)\b", re.IGNORECASE)
_NEAR = regex(r"\b(?P<day>today|yesterday|day before yesterday)\b", re.IGNORECASE)
_WEEKDAY = regex(rf"\b({'|'.join(_WEEKDAYS)})s?\b", re.IGNORECASE)

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
_NAME = regex(r"(?<![.?!]\s)(?<!^)\b[^\W\d_a-z][^\W\d_]+")
DAY_US = 86_400_000_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_ORDINAL = date.max.toordinal()


@cache
def _telling(asked_for: str) -> frozenset[str]:
    """Terms of which a passage that answers is likely to hold one."""
    return frozenset(terms(" ".join(word_lists("memory_engine.recall")[asked_for])))


class Day(msgspec.Struct, frozen=True):
    """A day, month, year or weekday that a question names; what it leaves open is 0 (weekday: 1 is Monday)."""

    year: int = 0
    month: int = 0
    day: int = 0
    weekday: int = 0

    def nearness(self, at_us: int) -> float:
        """How well a time fits, from 0 to 1: people talk about an event on its day and in the days after."""
        at = date.fromordinal(min(max(_EPOCH_ORDINAL + at_us // DAY_US, 1), _LAST_ORDINAL))
        if self.weekday:
            return 0.5 if at.isoweekday() == self.weekday else 0.0
        if self.year and self.year != at.year and not (self.month == 12 and at.year == self.year + 1):
            return 0.0
        if not self.month:
            return 0.5
        if not self.day:
            after = (at.month - self.month) % 12
            return 1.0 if not after else 0.5 if after == 1 and at.day <= AFTER_DAYS else 0.0
        return self._days_after(at)

    def _days_after(self, at: date) -> float:
        year = self.year or (at.year - 1 if at.month < self.month - 6 else at.year)
        try:
            after = (at - date(year, self.month, self.day)).days
        except ValueError:
            return 0.0
        return 1.0 if 0 <= after <= 1 else 0.7 if -1 <= after <= 7 else 0.4 if -7 <= after <= 21 else 0.0


class Question(msgspec.Struct, frozen=True):
    """A question, read. `terms` are distinct and in the question's order, at most 32.

    `names` are the terms of words written with a capital inside a sentence. `days` are the dates
    it names; `spans` the relative times ("last week") as (from, until) in microseconds UTC.
    `asks_for` is "time", "number" or "". `of_you` says that it asks for what an assistant has
    said, `to_you` that it may ask for that. `further` are terms by which passages become candidates beside `terms`.
    """

    text: str
    terms: tuple[str, ...]
    names: frozenset[str] = frozenset()
    days: tuple[Day, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    asks_for: str = ""
    of_you: bool = False
    to_you: bool = False
    further: tuple[str, ...] = ()

    def nearness(self, at_us: int) -> float:
        """How well a time fits the best of the days and spans, from 0 to 1; 0 where the question names none.

        All times of a day (UTC) fit alike.
        """
        days = max((day.nearness(at_us) for day in self.days), default=0.0)
        return max(days, max((_within(span, at_us) for span in self.spans), default=0.0))

    def may_hold_the_answer(self, passage: Sequence[str]) -> bool:
        """Whether a passage (its terms) holds a thing of the kind that the question asks for, if it asks for any."""
        if not self.asks_for:
            return False
        if not _telling(self.asks_for).isdisjoint(passage):
            return True
        if self.asks_for != "number" or "".join(passage).isalpha():
            return False
        return any(term[0].isdigit() for term in passage)


def read_question(text: str, *, now_us: int | None = None) -> Question:
    """Read a question. Relative times are resolved in UTC where `now_us` (microseconds) is given.

    Any string will do; the same string and time give the same question.
    """
    read = text[:TEXT_CHARS_MAX]
    return Question(
        text=text,
        terms=tuple(dict.fromkeys(terms(text)))[:TERMS_MAX],
        names=frozenset(term for name in _NAME.findall(read) for term in terms(name)),
        days=_days(read),
        spans=_spans(read, now_us),
        asks_for=next((kind for kind, pattern in _ASKED if pattern.search(read)), ""),
        of_you=_OF_YOU.search(read) is not None,
        to_you=_TO_YOU.search(read) is not None,
    )


def _days(text: str) -> tuple[Day, ...]:
    """The dates in a text, a part of the text being read once: as the fullest date that it fits."""
    text = _MAY_THE_VERB.sub("___", text)
    found: list[Day] = []
    for pattern in _DATES:
        for written in pattern.finditer(text):
            parts = written.groupdict()
            day = Day(int(parts.get("year") or 0), _month(parts), int(parts.get("day") or 0))
            if day.month <= 12 and day.day <= 31:
                found.append(day)
        text = pattern.sub(" _ ", text)
    found += [Day(weekday=_WEEKDAYS.index(name.lower()) + 1) for name in _WEEKDAY.findall(text)]
    return tuple(dict.fromkeys(found))


def _month(parts: dict[str, str | None]) -> int:
    if (number := parts.get("month_number")) is not None:
        return int(number)
    name = (parts.get("month") or "").lower()
    return _MONTHS.index(name[:3] if name == "sept" else name) % 12 + 1 if name else 0


def _spans(text: str, now_us: int | None) -> tuple[tuple[int, int], ...]:
    """The relative times of a text: from midnight to midnight, as wide as the text is vague."""
    if now_us is None:
        return ()
    today = now_us - now_us % DAY_US
    found = []
    for near in _NEAR.finditer(text):
        back = {"today": 0, "yesterday": 1}.get(near["day"].lower(), 2)
        found.append((today - back * DAY_US, today - (back - 1) * DAY_US))
    found += [_before(now_us, last["unit"].lower()) for last in _LAST.finditer(text)]
    found += [(_start(now_us, this["unit"].lower()), today + DAY_US) for this in _THIS.finditer(text)]
    for ago in _AGO.finditer(text):
        count = ago["count"].lower()
        unit = _UNIT_DAYS[ago["unit"].lower()]
        middle = today - (_COUNTS[count] if count in _COUNTS else int(count)) * unit * DAY_US
        found.append((middle - unit // 2 * DAY_US, middle + (unit // 2 + 1) * DAY_US))
    return tuple(found)


def _within(span: tuple[int, int], at_us: int) -> float:
    """1 for a time within a span, 0.5 for a time in the days after."""
    start, end = span
    return 1.0 if start <= at_us < end else 0.5 if end <= at_us < end + AFTER_DAYS * DAY_US else 0.0


def _start(now_us: int, unit: str) -> int:
    """The beginning of the week (from Monday), month or year in which a time lies."""
    day = datetime.fromtimestamp(now_us // 1_000_000, UTC).replace(hour=0, minute=0, second=0)
    if unit == "week":
        day -= timedelta(days=day.weekday())
    else:
        day = day.replace(day=1) if unit == "month" else day.replace(day=1, month=1)
    return int(day.timestamp()) * 1_000_000


def _before(now_us: int, unit: str) -> tuple[int, int]:
    end = _start(now_us, unit)
    return _start(end - 1, unit), end
