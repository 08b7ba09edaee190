"""Dates in Chinese, whose words are not apart."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, timedelta
from functools import cache

from memory_engine.core.lazy import regex
from memory_engine.language.dates import (
    HAN,
    Day,
    Stretch,
    all_names,
    any_in,
    begin_of,
    days_ago,
    numbers,
    part_of,
    period,
    periods,
    seasons,
    unit_of,
)
from memory_engine.language.dates_spaced import YEAR, DatedText

Days = tuple[date, date]
_Resolved = Callable[[Mapping[str, str | None], date], Days]


def dates_in(said: DatedText, today: date | None) -> tuple[list[Day | Stretch], list[Days], DatedText]:
    """Return the days that a text names by dates, its relative times, and the rest of the text."""
    days: list[Day | Stretch] = []
    relative: list[Days] = []
    for pattern, read in _date_patterns():
        for written in pattern.finditer(said.text):
            days += read(written.groupdict())
        said = said.without(pattern)
    if today is not None:
        for pattern, resolve in _relative():
            for written in pattern.finditer(said.text):
                with suppress(OverflowError, ValueError):  # no calendar has a day so long ago
                    relative.append(resolve(written.groupdict(), today))
            said = said.without(pattern)
    weekday = _weekday()
    days += [Day(weekday=numbers("week_days")[written["day"]]) for written in weekday.finditer(said.text)]
    return days, relative, said.without(weekday)


@cache
def _date_patterns() -> tuple[
    tuple[re.Pattern[str], Callable[[Mapping[str, str | None]], Iterator[Day | Stretch]]], ...
]:
    """Return the patterns of dates."""
    digits = any_in("counts", language=HAN).replace("|", "")
    month = r"(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])\s*月\s*份?"
    day = rf"(?P<day>[0-3]?\d|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])\s*(?:{any_in('days', language=HAN)})"
    part = rf"(?P<part>{any_in('parts', language=HAN)})(?!{any_in('not_before', language=HAN)})"
    that = rf"(?P<that>\s*的?(?:{any_in('that', language=HAN)}))"
    begin = rf"(?<![\d{digits}])(?:{YEAR}\s*年\s*)?(?<![\d{digits}])"
    season = any_in("seasons", language=HAN)
    return (
        (regex(rf"(?<!\d){YEAR}\s*年?的?(?P<season>{season})"), _season),
        (regex(rf"{begin}{month}(?:{day}{that}?|{part})?"), _parse_date),
        (regex(rf"(?<!\d){YEAR}\s*年"), lambda parts: iter([Day(int(parts["year"] or 0))])),
    )


def _season(parts: Mapping[str, str | None]) -> Iterator[Day | Stretch]:
    return seasons(parts["season"] or "", int(parts["year"] or 0))


def _parse_date(parts: Mapping[str, str | None]) -> Iterator[Day | Stretch]:
    year, month, day = int(parts["year"] or 0), _parse_number(parts["month"]), _parse_number(parts["day"])
    first, last = part_of(parts["part"])
    if day > 31:
        return
    if parts["that"]:
        yield Stretch(month=month, year=year, day=day, unit="week")
    elif first:
        yield Stretch(month=month, year=year, first=first, last=last)
    else:
        yield Day(year, month, day)


def _parse_number(written: str | None) -> int:
    """Return a number to 39 from digits or words; 0 for none."""
    if not written or written.isdecimal():
        return int(written or 0)
    words = numbers("counts")
    tens, ten, ones = written.rpartition("十")
    return (words[tens] if tens else 1) * (10 if ten else 0) + (words[ones] if ones else 0)


@cache
def _relative() -> tuple[tuple[re.Pattern[str], _Resolved], ...]:
    """Return the patterns of relative times, most complete first."""
    unit = any_in("units", language=HAN)
    not_before = rf"(?!{any_in('not_before', language=HAN)})"
    which = rf"(?<!上)(?<!以)(?P<which>{any_in('last_before', 'this_before', language=HAN)})"
    count = rf"(?<!\d)(?P<count>\d{{1,3}}|[二三四五六七八九]?十[一二三四五六七八九]?|{any_in('counts', language=HAN)})"
    return (
        (regex(rf"{count}\s*(?P<unit>{unit})(?:{any_in('ago_after', language=HAN)})"), _ago),
        (regex(rf"{which}{_weekday_pattern()}"), _weekday_of),
        (regex(rf"{which}(?P<unit>{periods(HAN)}){not_before}"), _this_or_last),
        (regex(rf"(?P<past>{any_in('years', language=HAN)})(?P<season>{any_in('seasons', language=HAN)})?"), _past),
        (regex(rf"(?P<near>{any_in('near', language=HAN)}){not_before}"), _near),
    )


@cache
def _weekday() -> re.Pattern[str]:
    return regex(rf"(?<![{''.join(all_names('not_after', HAN))}]){_weekday_pattern()}")


def _weekday_pattern() -> str:
    weeks, days = any_in("weeks", language=HAN), any_in("week_days", language=HAN)
    return rf"(?:{weeks})(?P<day>{days})(?!{any_in('not_before', language=HAN)})"


def _ago(parts: Mapping[str, str | None], today: date) -> Days:
    count = parts["count"] or ""
    return days_ago(_parse_number(count), unit_of(parts["unit"] or ""), today)


def _weekday_of(parts: Mapping[str, str | None], today: date) -> Days:
    day = begin_of(today, "week") + timedelta(days=numbers("week_days")[parts["day"] or ""] - 1 - 7 * _is_last(parts))
    return day, day


def _this_or_last(parts: Mapping[str, str | None], today: date) -> Days:
    return period(parts["unit"] or "", today, back=_is_last(parts))


def _is_last(parts: Mapping[str, str | None]) -> bool:
    return parts["which"] in all_names("last_before", HAN)


def _past(parts: Mapping[str, str | None], today: date) -> Days:
    """Return a year, or its season."""
    year = today.year - numbers("years")[parts["past"] or ""] + 1
    if parts["season"]:
        *_, found = filter(None, (one.stretch(year) for one in seasons(parts["season"], year)))
        return found
    return date(year, 1, 1), date(year, 12, 31)


def _near(parts: Mapping[str, str | None], today: date) -> Days:
    day = today - timedelta(days=numbers("near")[parts["near"] or ""] - 1)
    return day, day
