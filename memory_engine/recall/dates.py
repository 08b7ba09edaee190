"""The days that a question means: dates, parts of months, days before or after a date, and relative times."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec

from memory_engine.core.lazy import regex

AFTER_DAYS = 14
"""Days after an event in which people still talk about it."""
YEARS_BACK = 10
"""Years, this one among them, in which a date without a year is looked for."""
LISTED_DAYS_MAX = 31
"""Days of the longest stretch of time whose passages are all candidates."""
DAY_US = 86_400_000_000

_MONTHS: Sequence[str] = (
    "january february march april may june july august september october november december"
    " jan feb mar apr _ jun jul aug sep oct nov dec"
).split()
_WEEKDAYS: Sequence[str] = "monday tuesday wednesday thursday friday saturday sunday".split()
_MONTH_NAMES = "|".join(sorted((name for name in _MONTHS if name != "_"), key=len, reverse=True))
_MONTH = rf"(?P<month>{_MONTH_NAMES}|sept)\.?"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_OF_YEAR = rf"(?:,?\s+(?:of\s+|in\s+)?{_YEAR}\b)?"
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
_UNIT = rf"(?P<unit>day|week|weekend|{'|'.join(_WEEKDAYS)})"
_ORDINALS = {
    name: count
    for count, names in enumerate("|first 1st|second 2nd|third 3rd|fourth 4th|fifth 5th".split("|"))
    for name in names.split()
} | {"last": -1}
_PARTS = {"early": (1, 10), "mid": (11, 20), "late": (21, 31)} | {
    f"{part} of": days
    for part, days in (("beginning", (1, 10)), ("start", (1, 10)), ("middle", (11, 20)), ("end", (21, 31)))
}
_STRETCHES = tuple(
    regex(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_UNIT}\s+(?P<side>before|after|following|preceding|of)\s+(?:the\s+)?{_DAY}\s+(?:of\s+)?{_MONTH}\b{_OF_YEAR}",
        rf"\b{_UNIT}\s+(?P<side>before|after|following|preceding|of)\s+{_MONTH}\s+{_DAY}\b{_OF_YEAR}",
        rf"\b(?P<nth>{'|'.join(_ORDINALS)})\s+{_UNIT}\s+(?:of|in)\s+{_MONTH}\b{_OF_YEAR}",
        rf"\b(?P<part>early|mid|late|(?:beginning|start|middle|end)\s+of)(?:\s+in)?[\s-]+{_MONTH}\b{_OF_YEAR}",
    )
)
_SIDES = {"before": -1, "preceding": -1, "after": 1, "following": 1, "of": 0}
_HINT = regex(rf"\d|\b(?:{_MONTH_NAMES}|sept)\b", re.IGNORECASE)
"""Every date and stretch has one of these; most questions have none, and are read faster."""
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
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_ORDINAL = date.max.toordinal()
_SATURDAY, _SUNDAY = 6, 7


def day_of(at_us: int) -> date:
    """The date (UTC) of a time, or the nearest that a calendar has."""
    return date.fromordinal(min(max(_EPOCH_ORDINAL + at_us // DAY_US, 1), _LAST_ORDINAL))


class Day(msgspec.Struct, frozen=True):
    """A day, month, year or weekday that a question names; what it leaves open is 0 (weekday: 1 is Monday)."""

    year: int = 0
    month: int = 0
    day: int = 0
    weekday: int = 0

    def nearness(self, at_us: int) -> float:
        """How well a time fits, from 0 to 1: people talk about an event on its day and in the days after."""
        at = day_of(at_us)
        if self.weekday:
            return 0.5 if at.isoweekday() == self.weekday else 0.0
        if self.year and self.year != at.year and not (self.month == 12 and at.year == self.year + 1):
            return 0.0
        if not self.month:
            return 0.5
        if not self.day:
            after = (at.month - self.month) % 12
            return 1.0 if not after else 0.5 if after == 1 and at.day <= AFTER_DAYS else 0.0
        return _nearness(self.stretch(_year_of(self, at)), at)

    def stretch(self, year: int) -> tuple[date, date] | None:
        """Its first and last day in a year; `None` where it is not a single day, or not in the calendar."""
        try:
            only = date(self.year or year, self.month, self.day)
        except ValueError:
            return None
        return only, only


class Stretch(msgspec.Struct, frozen=True):
    """Some days that a question names by a month or a date: "the second week of May", "the Friday before 3 June".

    `unit` is `day`, `week`, `weekend`, or a weekday. Of a month it is the `nth` (-1: the last). Of a date (`day`) it is
    the one before (`side` -1), after (1), or around it (0). Without a unit it is the days `first` to `last` of a month.
    """

    month: int
    year: int = 0
    day: int = 0
    unit: str = ""
    nth: int = 0
    side: int = 0
    first: int = 0
    last: int = 0

    def nearness(self, at_us: int) -> float:
        """How well a time fits, from 0 to 1."""
        at = day_of(at_us)
        return _nearness(self.stretch(_year_of(self, at)), at)

    def stretch(self, year: int) -> tuple[date, date] | None:
        """Its first and last day in a year; `None` where the calendar does not have it."""
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


def _year_of(named: Day | Stretch, at: date) -> int:
    """The year in which a day that leaves it open was: of December people still talk in spring."""
    return named.year or (at.year - 1 if at.month < named.month - 6 else at.year)


def _nearness(stretch: tuple[date, date] | None, at: date) -> float:
    if stretch is None:
        return 0.0
    first, last = stretch
    before, after = (first - at).days, (at - last).days
    if before <= 0 and after <= 1:
        return 1.0
    return 0.7 if before <= 1 and after <= 7 else 0.4 if before <= 7 and after <= 21 else 0.0


def _end_of_month(year: int, month: int) -> date:
    return date(year, 12, 31) if month == 12 else date(year, month + 1, 1) - timedelta(days=1)


def _beside(named: date, unit: str, side: int) -> tuple[date, date]:
    """The day, week, weekend or weekday before, after or around a date."""
    if unit == "day":
        return (only := named + timedelta(days=side)), only
    if unit == "week":
        if side:
            return (
                (named + timedelta(days=1), named + timedelta(days=7))
                if side > 0
                else (
                    named - timedelta(days=7),
                    named - timedelta(days=1),
                )
            )
        monday = named - timedelta(days=named.weekday())
        return monday, monday + timedelta(days=6)
    length = 2 if unit == "weekend" else 1
    weekday = _SATURDAY if unit == "weekend" else _WEEKDAYS.index(unit) + 1
    if side < 0:
        last = named - timedelta(days=1)
        first = last - timedelta(days=(last.isoweekday() - weekday - length + 1) % 7 + length - 1)
    else:
        begin = named + timedelta(days=side or -3)
        first = begin + timedelta(days=(weekday - begin.isoweekday()) % 7)
    return first, first + timedelta(days=length - 1)


def _nth(begin: date, end: date, unit: str, nth: int) -> tuple[date, date] | None:
    """The n-th day, week, weekend or weekday of a month; -1 is the last."""
    if unit in ("day", "week"):
        size = 7 if unit == "week" else 1
        first = end - timedelta(days=size - 1) if nth < 0 else begin + timedelta(days=size * (nth - 1))
        return (first, min(end, first + timedelta(days=size - 1))) if first <= end else None
    weekday = _SATURDAY if unit == "weekend" else _WEEKDAYS.index(unit) + 1
    if nth < 0:
        first = end - timedelta(days=(end.isoweekday() - weekday) % 7)
    else:
        first = begin + timedelta(days=(weekday - begin.isoweekday()) % 7 + 7 * (nth - 1))
    return (first, first + timedelta(days=1 if unit == "weekend" else 0)) if first <= end else None


def named_days(text: str) -> tuple[Day | Stretch, ...]:
    """The days that a text names, a part of the text being read once: as the fullest date that it fits."""
    text = _MAY_THE_VERB.sub("___", text)
    found: list[Day | Stretch] = []
    is_dated = _HINT.search(text) is not None
    for pattern in _STRETCHES if is_dated else ():
        found += [_stretch(written.groupdict()) for written in pattern.finditer(text)]
        text = pattern.sub(" _ ", text)
    for pattern in _DATES if is_dated else ():
        for written in pattern.finditer(text):
            parts = written.groupdict()
            day = Day(int(parts.get("year") or 0), _month(parts), int(parts.get("day") or 0))
            if day.month <= 12 and day.day <= 31:
                found.append(day)
        text = pattern.sub(" _ ", text)
    found += [Day(weekday=_WEEKDAYS.index(name.lower()) + 1) for name in _WEEKDAY.findall(text)]
    return tuple(dict.fromkeys(found))


def _stretch(parts: dict[str, str | None]) -> Stretch:
    part = " ".join((parts.get("part") or "").lower().split())
    first, last = _PARTS.get(part, (0, 0))
    return Stretch(
        month=_month(parts),
        year=int(parts.get("year") or 0),
        day=int(parts.get("day") or 0),
        unit=(parts.get("unit") or "").lower(),
        nth=_ORDINALS.get((parts.get("nth") or "").lower(), 0),
        side=_SIDES.get((parts.get("side") or "").lower(), 0),
        first=first,
        last=last,
    )


def _month(parts: dict[str, str | None]) -> int:
    if (number := parts.get("month_number")) is not None:
        return int(number)
    name = (parts.get("month") or "").lower()
    return _MONTHS.index(name[:3] if name == "sept" else name) % 12 + 1 if name else 0


def listed_spans(
    days: Iterable[Day | Stretch], spans: Iterable[tuple[int, int]], now_us: int
) -> tuple[tuple[int, int], ...]:
    """The times (from, until; microseconds) whose passages are all candidates: the named days, and the day after.

    A date without a year is looked for in the last ten.
    """
    found: list[tuple[int, int]] = []
    this_year = day_of(now_us).year
    for day in days:
        years = (day.year,) if day.year else range(this_year, max(0, this_year - YEARS_BACK), -1)
        stretches = filter(None, map(day.stretch, years))
        found += [(_midnight(first), _midnight(last) + 2 * DAY_US - 1) for first, last in stretches]
    found += [(start, end + DAY_US - 1) for start, end in spans if end - start <= LISTED_DAYS_MAX * DAY_US]
    return tuple(dict.fromkeys(found))


def _midnight(day: date) -> int:
    return (day.toordinal() - _EPOCH_ORDINAL) * DAY_US


def relative_spans(text: str, now_us: int | None) -> tuple[tuple[int, int], ...]:
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


def within(span: tuple[int, int], at_us: int) -> float:
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
