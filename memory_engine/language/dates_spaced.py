"""Dates written in a text, in languages whose words are apart: days, months, weekdays, parts of months, seasons."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.dates import (
    HAN,
    Day,
    Stretch,
    all_names,
    any_in,
    any_of,
    full_names,
    number_of,
    numbers,
    part_of,
    rows,
    seasons,
    unit_of,
)
from memory_engine.language.rough import begins_sentence
from memory_engine.language.text import fold_case

YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_DAY_FIRST = r"\b(?P<day>[0-3]?\d)(?:st|nd|rd|th|er|ste|de|ten?|e|o)?\s+(?:of\s+|de\s+)?"
_YEAR_AFTER = rf",?\s+(?:del?\s+)?{YEAR}\b"
_OF_YEAR = rf"(?:,?\s+(?:of\s+|in\s+|del?\s+)?{YEAR}\b)?"
_CASED = regex(r"(?<!\d\s)\b(?:Mars|Mardi|Domingo)\b")
"""Words that are no dates because of their case: the planet, the carnival, the name."""
_NUMBER_BEFORE = regex(r"\d(?:st|nd|rd|th|er|ste|de|ten?|e|[oº°])?\.?\s*(?:(?:of|de)\s+)?$")
_NUMBER_AFTER = regex(r"\.?,?\s+(?:of\s+|del?\s+)?\d")
_DATE_AFTER = regex(
    r"\.?,?\s+(?:(?:of\s+|del?\s+)?(?:19|20)\d\d\b|[0-3]?\d(?:st|nd|rd|th)\b|[0-3]?\d(?=\s*(?:[,.;:?!)]|$)))"
)
_ENDS = regex(r"\s*(?:[,.;:?!)]|$)")
_NEAR_CHARS = 32
"""Characters before a word in which a preposition or number that makes a month of it is looked for."""
_LAST = 6
"""Number of the ordinal "last"."""
_WORD = regex(r"[^\W\d_]+")
_DIGIT = regex(r"\d")
_HAN = regex(r"[月年周週期拜天日]")


def _month(languages: tuple[str, ...] = ()) -> str:
    """Return the pattern of a month in a folded text; a short form may have a full stop."""
    other_words = {*all_names("between_numbers")}
    full = {*map(fold_case, full_names("months", *languages))} - other_words
    short = {*map(fold_case, all_names("months", *languages))} - full - other_words
    return rf"(?P<month>(?:{any_of(full)})\b" + (rf"|(?:{any_of(short)})\b\.?)" if short else ")")


class DatedText(msgspec.Struct, frozen=True):
    """A folded text that may name dates.

    `holds` are the languages and tables of the words of dates that it contains: the others need not be looked for.
    """

    text: str
    holds: frozenset[str]
    has_digit: bool

    def without(self, pattern: re.Pattern[str]) -> "DatedText":
        """Return it without what a pattern matches."""
        return msgspec.structs.replace(self, text=pattern.sub(" _ ", self.text))


_SILENT = DatedText("", frozenset(), has_digit=False)


@cache
def _homes() -> Mapping[str, frozenset[str]]:
    """Return the languages and tables of each word that a date may hold, but for Chinese."""
    found: dict[str, set[str]] = {}
    for table in ("months", "weekdays", "units", "near", "seasons"):
        for language in rows(table).keys() - {HAN}:
            for name in all_names(table, language):
                word = fold_case(name).split()[-1]
                for form in (word, f"{word}s") if table == "weekdays" else (word,):
                    found.setdefault(form, set()).update((language, table))
    return {word: frozenset(homes) for word, homes in found.items()}


def said_in(text: str) -> DatedText:
    """Return a text in the form that dates are read from. Words that are no dates because of their case are masked."""
    folded = fold_case(text)
    homes = _homes()
    found = frozenset().union(*[homes[word] for word in _WORD.findall(folded) if word in homes])
    if not folded.isascii() and _HAN.search(folded):
        found |= {HAN}
    has_digit = _DIGIT.search(folded) is not None
    if not found and not has_digit:
        return _SILENT
    if "months" in found or "weekdays" in found:
        folded = fold_case(_masked(text))
    return DatedText(folded, found, has_digit)


class _Months(msgspec.Struct, frozen=True):
    """Months that are other words too, and the words before them, in a folded text, that show which."""

    pattern: re.Pattern[str]
    verbs: frozenset[str]
    of_people: frozenset[str]
    after_day: re.Pattern[str]
    after: re.Pattern[str]
    after_any: re.Pattern[str]


@cache
def _months() -> _Months:
    verbs, short, people = (frozenset(all_names(table)) for table in ("verbs", "abbreviated", "of_people"))
    names = {*short, *(name for name in all_names("months") if fold_case(name) in verbs | people)}
    part, alone = any_in("parts", language="en"), any_in("before_months", language="en")
    before_day = any_of(all_names("before_days")) + "|" + alone
    return _Months(
        pattern=regex(rf"\b(?:{any_of(names)})\b", re.IGNORECASE),
        verbs=verbs,
        of_people=people,
        after_day=regex(
            rf"\b(?:(?:{before_day})\s+(?:the\s+)?[0-3]?\d\s+|[0-3]?\d(?:st|nd|rd|th)\s+(?:of\s+)?|[0-3]?\d\s+(?:of|de)\s+)$"
        ),
        after=regex(rf"\b(?:(?:{alone})\s+(?:(?:the\s+)?(?:{part})(?:\s+in)?[\s-]+)?|mid[\s-]+)$"),
        after_any=regex(rf"\b(?:{any_of(map(fold_case, all_names('before_months')))})\s+$"),
    )


def _masked(text: str) -> str:
    """Return a text without the words that are no months in their places: the verbs, the planet."""
    text = _CASED.sub("___", text)
    months = _months()
    return months.pattern.sub(lambda found: found[0] if _is_month(found, text, months) else "___", text)


def _is_month(found: re.Match[str], text: str, months: _Months) -> bool:
    """Return whether a word that may be a month is one, by its case and by what surrounds it."""
    name, word = found[0], fold_case(found[0])
    before = fold_case(text[max(0, found.start() - _NEAR_CHARS) : found.start()])
    is_name = name.istitle() and not begins_sentence(text, found.start())
    if months.after.search(before) or (is_name and word not in months.of_people):
        return True
    is_verb = word in months.verbs and name.isascii()
    if not is_verb and word not in months.of_people and months.after_any.search(before):
        return True
    end = found.end()
    has_number = _NUMBER_BEFORE.search(before) is not None or _NUMBER_AFTER.match(text, end) is not None
    if not has_number or not is_verb or (name.istitle() and not before.rstrip().endswith(".")):
        return has_number
    return (
        months.after_day.search(before) is not None
        or _DATE_AFTER.match(text, end) is not None
        or (before[-1:].isspace() and before.rstrip()[-1:].isdigit() and _ENDS.match(text, end) is not None)
        or (before.split()[-1:] == ["on"] and _NUMBER_AFTER.match(text, end) is not None)
    )


class _Grammar(msgspec.Struct, frozen=True):
    """Patterns of dates in a folded text, most complete first: those of a language by the language."""

    iso: re.Pattern[str]
    dates: tuple[re.Pattern[str], ...]
    alone: Mapping[str, re.Pattern[str]]
    english: re.Pattern[str]
    year: re.Pattern[str]
    stretches: Mapping[str, tuple[re.Pattern[str], ...]]
    season: re.Pattern[str]
    weekday: re.Pattern[str]


@cache
def _grammar() -> _Grammar:
    """Return the patterns. A month alone needs a preposition before it in other languages than English."""
    month, english, german = _month(), _month(("en",)), _month(("de",))
    dates = (
        rf"\b(?P<day>[0-3]?\d)\.\s*{german}(?:{_YEAR_AFTER})?",
        rf"{_DAY_FIRST}{month}(?:{_YEAR_AFTER})?",
        rf"{_DAY_FIRST}(?P<month>{any_of(all_names('between_numbers'))})\b\.?{_YEAR_AFTER}",
        rf"\b{english}\.?\s+{_DAY}\b(?:,?\s+{YEAR}\b)?",
        rf"\b{month},?\s+(?:of\s+|del?\s+)?{YEAR}\b",
    )
    alone = {
        language: rf"\b(?:{any_in('before_months', language=language)})\s+"
        rf"(?P<month>{any_of(map(fold_case, full_names('months', language)))})\b"
        for language in rows("before_months")
        if language != "en"
    }
    season = "|".join(any_in("seasons", language=language) for language in rows("seasons") if language != HAN)
    return _Grammar(
        iso=regex(rf"\b{YEAR}-(?P<month_number>[01]?\d)-(?P<day>[0-3]?\d)\b"),
        dates=tuple(map(regex, dates)),
        alone={language: regex(pattern) for language, pattern in alone.items()},
        english=regex(rf"\b{english}"),
        year=regex(rf"\b{YEAR}\b"),
        stretches={language: tuple(map(regex, _stretches(language))) for language in rows("parts") if language != HAN},
        season=regex(rf"\b(?P<season>{season}),?\s+(?:of\s+|in\s+|del?\s+)?{YEAR}\b"),
        weekday=regex(rf"\b({any_of(map(fold_case, full_names('weekdays')))})s?\b"),
    )


def _stretches(language: str) -> Iterator[str]:
    """Return the patterns of stretches in a language: parts of months; days, weeks and weekends by a date."""
    month, part = _month((language,)), any_in("parts", language=language)
    unit = rf"(?P<unit>{any_in('units', 'weekdays', language=language)})"
    day = rf"{_DAY}\.?\s*(?:(?:of|de)\s+)?{month}{_OF_YEAR}"
    if language == "en":
        side = rf"\b{unit}\s+(?P<side>{any_in('sides', language='en')})\s+"
        yield rf"{side}(?:the\s+)?{day}"
        yield rf"{side}{month}\.?\s+{_DAY}\b{_OF_YEAR}"
        yield rf"\b(?P<nth>{any_in('ordinals', language='en')})\s+{unit}\s+(?:of|in)\s+{month}{_OF_YEAR}"
    elif of_date := any_in("of_date", language=language):
        yield rf"\b{unit}\s+(?:{of_date})\s+{day}"
    yield rf"\b(?P<part>{part})(?:\s+in)?[\s-]+{month}{_OF_YEAR}"


def stretches_in(said: DatedText) -> tuple[list[Day | Stretch], DatedText]:
    """Return the stretches of days that a text names, and the rest of the text."""
    grammar = _grammar()
    found: list[Day | Stretch] = []
    for language, patterns in grammar.stretches.items() if "months" in said.holds else ():
        for pattern in patterns if language in said.holds else ():
            found += [_stretch(written.groupdict()) for written in pattern.finditer(said.text)]
            said = said.without(pattern)
    if said.has_digit and "seasons" in said.holds:
        for written in grammar.season.finditer(said.text):
            found += seasons(written["season"], int(written["year"]))
        said = said.without(grammar.season)
    return found, said


def days_in(said: DatedText) -> list[Day | Stretch]:
    """Return the days that a text names by dates, months, years and weekdays."""
    grammar = _grammar()
    found: list[Day | Stretch] = []
    has_month = "months" in said.holds
    alone = [pattern for language, pattern in grammar.alone.items() if has_month and language in said.holds]
    with_number = (grammar.iso, *(grammar.dates if has_month else ())) if said.has_digit else ()
    last = (*([grammar.english] if has_month else ()), *([grammar.year] if said.has_digit else ()))
    for pattern in (*with_number, *alone, *last):
        for written in pattern.finditer(said.text):
            parts = written.groupdict()
            day = Day(int(parts.get("year") or 0), _month_of(parts), int(parts.get("day") or 0))
            if day.month <= 12 and day.day <= 31:
                found.append(day)
        said = said.without(pattern)
    if "weekdays" not in said.holds:
        return found
    return found + [Day(weekday=numbers("weekdays")[name]) for name in grammar.weekday.findall(said.text)]


def _stretch(parts: Mapping[str, str | None]) -> Stretch:
    first, last = part_of(parts.get("part"))
    nth = number_of("ordinals", parts.get("nth"))
    return Stretch(
        month=_month_of(parts),
        year=int(parts.get("year") or 0),
        day=int(parts.get("day") or 0),
        unit=unit_of(parts.get("unit") or ""),
        nth=-1 if nth == _LAST else nth,
        side=number_of("sides", parts.get("side")) - 2 if parts.get("side") else 0,
        first=first,
        last=last,
    )


def _month_of(parts: Mapping[str, str | None]) -> int:
    name = (parts.get("month") or "").rstrip(".")
    return int(parts.get("month_number") or 0) or (numbers("months")[name] if name else 0)
