"""Dates in text, in the languages of `dates.toml`: days, months, weekdays; in English also weeks and relative times."""

import re
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from functools import cache
from typing import Literal

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.lists import content_of
from memory_engine.language.text import fold_case

_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_DAY_FIRST = r"\b(?P<day>[0-3]?\d)(?:st|nd|rd|th|er|ste|de|ten?|e|o)?\s+(?:of\s+|de\s+)?"
_YEAR_AFTER = rf",?\s+(?:del?\s+)?{_YEAR}\b"
_OF_YEAR = rf"(?:,?\s+(?:of\s+|in\s+)?{_YEAR}\b)?"
_ORDINALS: Mapping[str, int] = dict(
    zip("first second third fourth fifth 1st 2nd 3rd 4th 5th last".split(), [*range(1, 6)] * 2 + [-1], strict=True)
)
_PARTS = {"early": (1, 10), "mid": (11, 20), "late": (21, 31)} | {
    f"{part} of": days
    for part, days in (("beginning", (1, 10)), ("start", (1, 10)), ("middle", (11, 20)), ("end", (21, 31)))
}
_SIDES = {"before": -1, "preceding": -1, "after": 1, "following": 1, "of": 0}
_CASED = regex(r"\bmay\b(?!\.?,?\s+(?:del?\s+)?(?:19|20)\d\d\b)|(?<!\d\s)\b(?:Mars|Mardi|Domingo)\b")
"""Words that are no dates because of their case: the verb, the planet, the carnival, the name."""
_OTHER_WORDS = frozenset({"ago", "marco"})
"""Folded names of months that are also another word or a name: they are read only between a day and a year."""
_AGO = regex(
    r"\b(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|a few|a couple of)\s+"
    r"(?P<unit>day|week|month|year)s?\s+ago\b",
    re.IGNORECASE,
)
_COUNTS: Mapping[str, int] = {"a": 1, "an": 1, "a couple of": 2, "a few": 3} | dict(
    zip("one two three four five six seven eight nine ten".split(), range(1, 11), strict=True)
)
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_LAST = regex(r"\b(?:last|past|previous)\s+(?P<unit>week|month|year)\b", re.IGNORECASE)
_THIS = regex(r"\bthis\s+(?P<unit>week|month|year)\b", re.IGNORECASE)
_NEAR = regex(r"\b(?P<day>today|yesterday|day before yesterday)\b", re.IGNORECASE)
_SATURDAY = 6

Table = Literal["months", "weekdays"]
_SIZES: Mapping[Table, int] = {"months": 12, "weekdays": 7}


@cache
def _rows(table: Table) -> Mapping[str, list[str]]:
    tables = content_of("memory_engine.language", "dates.toml", dict[str, dict[str, str]])
    return {language: rows.split() for language, rows in tables[table].items()}


def full_names(table: Table, *languages: str) -> tuple[str, ...]:
    """Return the full names of months or weekdays in lowercase, in order; in all languages if none is given."""
    rows = _rows(table)
    return tuple(name for language in languages or rows for name in rows[language][: _SIZES[table]])


def all_names(table: Table, *languages: str) -> tuple[str, ...]:
    """Return the names like `full_names`, including the short forms."""
    rows = _rows(table)
    return tuple(name for language in languages or rows for name in rows[language] if name != "_")


@cache
def _numbers(table: Table) -> Mapping[str, int]:
    """Return the number, from 1, of each folded name."""
    rows = _rows(table).values()
    return {fold_case(name): n % _SIZES[table] + 1 for names in rows for n, name in enumerate(names)}


def any_of(names: Iterable[str]) -> str:
    """Return names as alternatives of a regular expression, longest first."""
    return "|".join(map(re.escape, sorted(set(names), key=lambda name: (-len(name), name))))


def _month(languages: tuple[str, ...] = ()) -> str:
    """Return the pattern of a month in a folded text; a short form may have a full stop."""
    full = {*map(fold_case, full_names("months", *languages))} - _OTHER_WORDS
    short = {*map(fold_case, all_names("months", *languages))} - full - _OTHER_WORDS
    return rf"(?P<month>(?:{any_of(full)})\b|(?:{any_of(short)})\b\.?)"


class _Grammar(msgspec.Struct, frozen=True):
    """Patterns of dates in a folded text. A text that does not match `hint` matches no `dates` and no `stretches`."""

    hint: re.Pattern[str]
    dates: tuple[re.Pattern[str], ...]
    stretches: tuple[re.Pattern[str], ...]
    weekday: re.Pattern[str]


@cache
def _grammar() -> _Grammar:
    """Return the patterns, most complete first. A month alone, or before its day, is read only in English."""
    month, english, german = _month(), _month(("en",)), _month(("de",))
    unit = rf"(?P<unit>day|week|weekend|{any_of(full_names('weekdays', 'en'))})"
    side = rf"\b{unit}\s+(?P<side>{'|'.join(_SIDES)})\s+"
    dates = (
        rf"\b{_YEAR}-(?P<month_number>[01]?\d)-(?P<day>[0-3]?\d)\b",
        rf"\b(?P<day>[0-3]?\d)\.\s*{german}(?:{_YEAR_AFTER})?",
        rf"{_DAY_FIRST}{month}(?:{_YEAR_AFTER})?",
        rf"{_DAY_FIRST}(?P<month>{any_of(_OTHER_WORDS)})\b\.?{_YEAR_AFTER}",
        rf"\b{english}\.?\s+{_DAY}\b(?:,?\s+{_YEAR}\b)?",
        rf"\b{month},?\s+(?:of\s+|del?\s+)?{_YEAR}\b",
        rf"\b{english}",
        rf"\b{_YEAR}\b",
    )
    stretches = (
        rf"{side}(?:the\s+)?{_DAY}\s+(?:of\s+)?{english}{_OF_YEAR}",
        rf"{side}{english}\.?\s+{_DAY}\b{_OF_YEAR}",
        rf"\b(?P<nth>{'|'.join(_ORDINALS)})\s+{unit}\s+(?:of|in)\s+{english}{_OF_YEAR}",
        rf"\b(?P<part>early|mid|late|(?:beginning|start|middle|end)\s+of)(?:\s+in)?[\s-]+{english}{_OF_YEAR}",
    )
    return _Grammar(
        hint=re.compile(rf"\d|\b(?:{any_of(all_names('months', 'en'))})\b"),
        dates=tuple(map(regex, dates)),
        stretches=tuple(map(regex, stretches)),
        weekday=re.compile(rf"\b({any_of(map(fold_case, full_names('weekdays')))})s?\b"),
    )


class Day(msgspec.Struct, frozen=True):
    """A day, month, year or weekday that a question names. Unspecified fields are 0 (weekday: 1 is Monday)."""

    year: int = 0
    month: int = 0
    day: int = 0
    weekday: int = 0

    def stretch(self, year: int) -> tuple[date, date] | None:
        """Return its first and last day in a year; `None` if it is not a single day or not a valid date."""
        try:
            only = date(self.year or year, self.month, self.day)
        except ValueError:
            return None
        return only, only


class Stretch(msgspec.Struct, frozen=True):
    """A range of days that a question names by a month or date: "the second week of May", "the Friday before 3 June".

    `unit` is `day`, `week`, `weekend`, or a weekday. Relative to a month, it is the `nth` unit (-1: the last). Relative
    to a date (`day`), it is the unit before (`side` -1), after (1), or around it (0). Without a unit, it is the days
    `first` to `last` of a month.
    """

    month: int
    year: int = 0
    day: int = 0
    unit: str = ""
    nth: int = 0
    side: int = 0
    first: int = 0
    last: int = 0

    def stretch(self, year: int) -> tuple[date, date] | None:
        """Return its first and last day in a year; `None` if the calendar does not contain it."""
        year = self.year or year
        try:
            if self.day:
                return _beside(date(year, self.month, self.day), self.unit, self.side)
            begin, end = date(year, self.month, 1), _end_of_month(year, self.month)
            if not self.unit:
                return begin.replace(day=self.first), min(end, begin + timedelta(days=self.last - 1))
            return _nth(begin, end, self.unit, self.nth)
        except (ValueError, OverflowError):
            return None


def _end_of_month(year: int, month: int) -> date:
    return date(year, 12, 31) if month == 12 else date(year, month + 1, 1) - timedelta(days=1)


def _beside(named: date, unit: str, side: int) -> tuple[date, date]:
    """Return the day, week, weekend or weekday before, after or around a date."""
    if unit == "day":
        return (only := named + timedelta(days=side)), only
    if unit == "week":
        first = named + timedelta(days=(-7, -named.weekday(), 1)[side + 1])
        return first, first + timedelta(days=6)
    length = 2 if unit == "weekend" else 1
    weekday = _SATURDAY if unit == "weekend" else _numbers("weekdays")[unit]
    if side < 0:
        last = named - timedelta(days=1)
        first = last - timedelta(days=(last.isoweekday() - weekday - length + 1) % 7 + length - 1)
    else:
        begin = named + timedelta(days=side or -3)
        first = begin + timedelta(days=(weekday - begin.isoweekday()) % 7)
    return first, first + timedelta(days=length - 1)


def _nth(begin: date, end: date, unit: str, nth: int) -> tuple[date, date] | None:
    """Return the n-th day, week, weekend or weekday of a month; -1 is the last."""
    if unit in ("day", "week"):
        size = 7 if unit == "week" else 1
        first = end - timedelta(days=size - 1) if nth < 0 else begin + timedelta(days=size * (nth - 1))
        return (first, min(end, first + timedelta(days=size - 1))) if first <= end else None
    weekday = _SATURDAY if unit == "weekend" else _numbers("weekdays")[unit]
    if nth < 0:
        first = end - timedelta(days=(end.isoweekday() - weekday) % 7)
    else:
        first = begin + timedelta(days=(weekday - begin.isoweekday()) % 7 + 7 * (nth - 1))
    return (first, first + timedelta(days=1 if unit == "weekend" else 0)) if first <= end else None


def named_days(text: str) -> tuple[Day | Stretch, ...]:
    """Return the days that a text names. Each part of the text is read once, as the most complete date that it fits."""
    grammar, text = _grammar(), fold_case(_CASED.sub("___", text))
    found: list[Day | Stretch] = []
    is_dated = grammar.hint.search(text) is not None
    for pattern in grammar.stretches if is_dated else ():
        found += [_stretch(written.groupdict()) for written in pattern.finditer(text)]
        text = pattern.sub(" _ ", text)
    for pattern in grammar.dates if is_dated else ():
        for written in pattern.finditer(text):
            parts = written.groupdict()
            day = Day(int(parts.get("year") or 0), _month_of(parts), int(parts.get("day") or 0))
            if day.month <= 12 and day.day <= 31:
                found.append(day)
        text = pattern.sub(" _ ", text)
    found += [Day(weekday=_numbers("weekdays")[name]) for name in grammar.weekday.findall(text)]
    return tuple(dict.fromkeys(found))


def _stretch(parts: Mapping[str, str | None]) -> Stretch:
    first, last = _PARTS.get(" ".join((parts.get("part") or "").split()), (0, 0))
    return Stretch(
        month=_month_of(parts),
        year=int(parts.get("year") or 0),
        day=int(parts.get("day") or 0),
        unit=parts.get("unit") or "",
        nth=_ORDINALS.get(parts.get("nth") or "", 0),
        side=_SIDES.get(parts.get("side") or "", 0),
        first=first,
        last=last,
    )


def _month_of(parts: Mapping[str, str | None]) -> int:
    name = (parts.get("month") or "").rstrip(".")
    return int(parts.get("month_number") or 0) or (_numbers("months")[name] if name else 0)


def relative_days(text: str, today: date) -> tuple[tuple[date, date], ...]:
    """Return the first and last day of each relative time in a text, as wide as the text is vague."""
    found = []
    for near in _NEAR.finditer(text):
        day = today - timedelta(days={"today": 0, "yesterday": 1}.get(near["day"].lower(), 2))
        found.append((day, day))
    for last in _LAST.finditer(text):
        end = _start(today, last["unit"].lower()) - timedelta(days=1)
        found.append((_start(end, last["unit"].lower()), end))
    found += [(_start(today, this["unit"].lower()), today) for this in _THIS.finditer(text)]
    for ago in _AGO.finditer(text):
        count = ago["count"].lower()
        unit = _UNIT_DAYS[ago["unit"].lower()]
        middle = today - timedelta(days=(_COUNTS[count] if count in _COUNTS else int(count)) * unit)
        found.append((middle - timedelta(days=unit // 2), middle + timedelta(days=unit // 2)))
    return tuple(found)


def _start(day: date, unit: str) -> date:
    """Return the first day of the week (from Monday), month or year that contains a day."""
    if unit == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if unit == "month" else day.replace(day=1, month=1)
