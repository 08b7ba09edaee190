"""Days that a text names, by their dates or as relative times ("last week"), in the languages of `dates.toml`."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, timedelta
from functools import cache
from itertools import chain

from memory_engine.core.lazy import regex
from memory_engine.language import dates_unspaced
from memory_engine.language.dates import (
    HAN,
    Day,
    Stretch,
    all_names,
    any_in,
    any_of,
    begin_of,
    days_ago,
    full_names,
    numbers,
    period,
    periods,
    rows,
    unit_of,
)
from memory_engine.language.dates_spaced import DatedText, days_in, said_in, stretches_in
from memory_engine.language.text import fold_case

Days = tuple[date, date]
"""The first and the last day of a time."""
_Resolved = Callable[[Mapping[str, str], date], Days]
_GLUE = r"(?:'s)?,?\s+(?:\w{2,3}\s+){0,2}"
"""Words between a weekday and its week: "Tuesday of last week"."""


def read_dates(text: str, today: date | None = None) -> tuple[tuple[Day | Stretch, ...], tuple[Days, ...]]:
    """Return the days that a text names by dates, and the first and last day of each relative time in it.

    Each part of the text is read once, as the most complete date that it fits. Without `today` no time is relative.
    """
    said = said_in(text)
    if not said.text:
        return (), ()
    days, said = stretches_in(said)
    relative: list[Days] = []
    if HAN in said.holds:
        written, relative, said = dates_unspaced.dates_in(said, today)
        days += written
    if today is not None:
        found, said = _relative_in(said, today)
        relative += found
    return tuple(dict.fromkeys((*days, *days_in(said)))), tuple(dict.fromkeys(relative))


def named_days(text: str) -> tuple[Day | Stretch, ...]:
    """Return the days that a text names by dates."""
    return read_dates(text)[0]


def relative_days(text: str, today: date) -> tuple[Days, ...]:
    """Return the first and last day of each relative time in a text, as wide as the text is vague."""
    return read_dates(text, today)[1]


def _relative_in(said: DatedText, today: date) -> tuple[list[Days], DatedText]:
    found: list[Days] = []
    languages = [language for language in rows("near") if language != HAN and language in said.holds]
    for needs, pattern, resolve in chain.from_iterable(map(_patterns, languages)):
        if not needs <= said.holds:
            continue
        for written in pattern.finditer(said.text):
            with suppress(OverflowError, ValueError):  # no calendar has a day so long ago
                parts = {name: " ".join(part.split()) for name, part in written.groupdict().items()}
                found.append(resolve(parts, today))
        said = said.without(pattern)
    return found, said


@cache
def _patterns(language: str) -> tuple[tuple[frozenset[str], re.Pattern[str], _Resolved], ...]:
    return tuple(
        (frozenset(needs.split()), regex(pattern), resolve) for needs, pattern, resolve in _templates(language)
    )


def _templates(language: str) -> Iterator[tuple[str, str, _Resolved]]:
    """Return the patterns of a language, most complete first, each after the tables of the words that it needs."""
    unit, weekday = any_in("units", language=language), any_of(map(fold_case, full_names("weekdays", language)))
    months = any_of(map(fold_case, full_names("months", language)))
    thing = "|".join((periods(language), weekday, months, any_in("seasons", language=language)))
    count = rf"(?P<count>\d{{1,3}}|{any_in('counts', language=language)})\s+(?P<unit>{unit})"
    which = rf"(?P<which>{any_in('last_before', 'this_before', language=language)})\s+"
    after = any_in("last_after", language=language)
    for said in (rf"{which}(?P<thing>{{}})", rf"(?P<thing>{{}})\s+(?P<which>{after})" if after else ""):
        if said:
            week = said.format(periods(language, "week"))
            yield "units weekdays", rf"\b(?P<day>{weekday}){_GLUE}{week}\b", _weekday_of
            yield "units weekdays", rf"\b{week}{_GLUE}(?P<day>{weekday})\b", _weekday_of
            yield "", rf"\b{said.format(thing)}\b", _this_or_last
    if ago := any_in("ago_before", language=language):
        yield "units", rf"\b(?:{ago})\s+{count}\b", _ago
    if ago := any_in("ago_after", language=language):
        yield "units", rf"\b{count}\s+(?:{ago})\b", _ago
    yield "near", rf"\b(?P<near>{any_in('near', language=language)})\b", _near


def _near(parts: Mapping[str, str], today: date) -> Days:
    day = today - timedelta(days=numbers("near")[parts["near"]] - 1)
    return day, day


def _ago(parts: Mapping[str, str], today: date) -> Days:
    count = parts["count"]
    return days_ago(int(count) if count.isdecimal() else numbers("counts")[count], unit_of(parts["unit"]), today)


def _this_or_last(parts: Mapping[str, str], today: date) -> Days:
    return period(parts["thing"], today, back=parts["which"] not in all_names("this_before"))


def _weekday_of(parts: Mapping[str, str], today: date) -> Days:
    """Return a weekday of this or the last week."""
    back = parts["which"] not in all_names("this_before")
    day = begin_of(today, "week") + timedelta(days=numbers("weekdays")[parts["day"]] - 1 - 7 * back)
    return day, day
