"""The names of dates in the languages of `dates.toml`, and their days in a calendar."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from functools import cache
from typing import Literal

import msgspec

from memory_engine.language.lists import content_of
from memory_engine.language.text import fold_case

_SATURDAY = 6

Table = Literal["months", "weekdays", "units", "short_units", "near", "counts", "parts", "seasons", "ordinals", "sides"]
_SIZES: Mapping[str, int] = {
    "months": 12, "weekdays": 7, "units": 5, "short_units": 5, "near": 3, "counts": 10, "parts": 3, "seasons": 4,
    "ordinals": 6, "sides": 3, "week_days": 7, "years": 3,
}  # fmt: skip
HAN = "zh"
"""Language whose words are not separated. Its numbers are the names of `counts`."""


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    return content_of("memory_engine.language", "dates.toml", dict[str, dict[str, str]])


@cache
def rows(table: str) -> Mapping[str, list[str]]:
    """Return the words of a table by language, in the order of its rows; `_` is a gap."""
    return {
        language: [word if word == "_" else word.replace("_", " ") for word in listed.split()]
        for language, listed in _tables()[table].items()
    }


def full_names(table: Table, *languages: str) -> tuple[str, ...]:
    """Return the full names of months or weekdays in lowercase, in order; in all languages if none is given."""
    found = rows(table)
    return tuple(name for language in languages or found for name in found[language][: _SIZES[table]])


def all_names(table: str, *languages: str) -> tuple[str, ...]:
    """Return the names like `full_names`, including the short forms; none for a language that has no row."""
    found = rows(table)
    return tuple(name for language in languages or found for name in found.get(language, ()) if name != "_")


@cache
def numbers(table: str) -> Mapping[str, int]:
    """Return the number, from 1, of each folded name."""
    size = _SIZES[table]
    return {fold_case(name): n % size + 1 for names in rows(table).values() for n, name in enumerate(names)}


def any_of(names: Iterable[str]) -> str:
    """Return names as alternatives of a regular expression, longest first."""
    return "|".join(map(re.escape, sorted(set(names), key=lambda name: (-len(name), name))))


def any_in(*tables: str, language: str) -> str:
    """Return the folded words of tables in a language as alternatives; a blank matches any white space."""
    words = any_of(fold_case(name) for table in tables for name in all_names(table, language))
    return words.replace("\\ ", r"\s+")


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
    `first` to `last` of a month, or as many `months` from one on.
    """

    month: int
    year: int = 0
    day: int = 0
    unit: str = ""
    nth: int = 0
    side: int = 0
    first: int = 0
    last: int = 0
    months: int = 1

    def stretch(self, year: int) -> tuple[date, date] | None:
        """Return its first and last day in a year; `None` if the calendar does not contain it."""
        year = self.year or year
        try:
            if self.day:
                return _adjacent_span(date(year, self.month, self.day), self.unit, self.side)
            begin, end = date(year, self.month, 1), end_of_month(year, self.month)
            if self.months > 1:
                return begin, end_of_months(begin, self.months)
            if not self.unit:
                return begin.replace(day=self.first), min(end, begin + timedelta(days=self.last - 1))
            return _nth(begin, end, self.unit, self.nth)
        except (ValueError, OverflowError):
            return None


def end_of_month(year: int, month: int) -> date:
    """Return the last day of a month."""
    return date(year, 12, 31) if month == 12 else date(year, month + 1, 1) - timedelta(days=1)


def end_of_months(begin: date, months: int) -> date:
    """Return the last day of as many months, the first of which begins on a day. Raises `ValueError`."""
    last = begin.year * 12 + begin.month - 1 + months - 1
    return end_of_month(last // 12, last % 12 + 1)


def _adjacent_span(named: date, unit: str, side: int) -> tuple[date, date]:
    """Return the day, week, weekend or weekday before, after or around a date."""
    if unit == "day":
        return (only := named + timedelta(days=side)), only
    if unit == "week":
        first = named + timedelta(days=(-7, -named.weekday(), 1)[side + 1])
        return first, first + timedelta(days=6)
    length = 2 if unit == "weekend" else 1
    weekday = _SATURDAY if unit == "weekend" else numbers("weekdays")[unit]
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
    weekday = _SATURDAY if unit == "weekend" else numbers("weekdays")[unit]
    if nth < 0:
        first = end - timedelta(days=(end.isoweekday() - weekday) % 7)
    else:
        first = begin + timedelta(days=(weekday - begin.isoweekday()) % 7 + 7 * (nth - 1))
    return (first, first + timedelta(days=1 if unit == "weekend" else 0)) if first <= end else None


def seasons(name: str, year: int) -> Iterator[Stretch]:
    """Return the season of a year: three months. A winter is both that end or begin in the year."""
    month = numbers("seasons")[name] * 3
    if month == 12:
        yield Stretch(month=month, year=year - 1, months=3)
    yield Stretch(month=month, year=year, months=3)


def number_of(table: Table, name: str | None) -> int:
    """Return the number of a name that may be written with other blanks; 0 for none."""
    return numbers(table)[" ".join(name.split())] if name else 0


def part_of(name: str | None) -> tuple[int, int]:
    """Return the first and last day of a part of a month; zeros for none."""
    part = number_of("parts", name)
    return (10 * part - 9, 31 if part == len(full_names("parts", "en")) else 10 * part) if part else (0, 0)


def unit_of(name: str) -> str:
    """Return the English name of a unit in any language; a weekday unchanged."""
    name = " ".join(name.split())
    number = numbers("units").get(name) or numbers("short_units").get(name)
    return full_names("units", "en")[number - 1] if number else name


_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


def periods(language: str, *only: str) -> str:
    """Return the words of a language for the units from a week on, or for these units, as alternatives."""
    names = map(fold_case, (*all_names("units", language), *all_names("short_units", language)))
    return any_of(name for name in names if (unit_of(name) in only if only else unit_of(name) != "day"))


def begin_of(day: date, unit: str) -> date:
    """Return the first day of the week (from Monday), month or year that contains a day."""
    if unit == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if unit == "month" else day.replace(day=1, month=1)


def days_ago(count: int, unit: str, today: date) -> tuple[date, date]:
    """Return the first and last day meant by "`count` `unit`s ago": two weeks ago is a week, three days ago is a day.

    Raises `OverflowError` for dates before year 1.
    """
    if unit == "weekend":
        first, last = period(unit, today, back=True)
        return first - timedelta(weeks=count - 1), last - timedelta(weeks=count - 1)
    around = timedelta(days=_UNIT_DAYS[unit] // 2)
    middle = today - timedelta(days=count * _UNIT_DAYS[unit])
    return middle - around, middle + around


def period(name: str, today: date, *, back: bool) -> tuple[date, date]:
    """Return this unit, weekday, month or season, or the last one, by its folded name in any language.

    The last one has ended; of this one, a week, month or year ends today. Raises `OverflowError`.
    """
    unit, name = unit_of(name), name.rstrip(".")
    if unit in ("week", "month", "year"):
        begin = begin_of(today, unit)
        return (begin_of(begin - timedelta(days=1), unit), begin - timedelta(days=1)) if back else (begin, today)
    if unit == "weekend" or name in numbers("weekdays"):
        weekday = _SATURDAY if unit == "weekend" else numbers("weekdays")[name]
        first = begin_of(today, "week") + timedelta(days=weekday - 1)
        length = timedelta(days=1 if unit == "weekend" else 0)
        first -= timedelta(weeks=back and first + length >= today)
        return first, first + length
    month = numbers("months").get(name) or numbers("seasons")[name] * 3
    months = 1 if name in numbers("months") else 3
    begin = date(today.year, month, 1)
    while back and end_of_months(begin, months) >= today:
        begin = begin.replace(year=begin.year - 1)
    return begin, end_of_months(begin, months)
