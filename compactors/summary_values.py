"""Numbers, dates and identifiers of a summary that none of its sources hold: a model has made them up."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta

from attrs import define, field

from memory_engine.core.lazy import regex
from memory_engine.language.masking import PLACEHOLDER
from memory_engine.language.text import UNSPACED

_TOKEN = regex(r"[^\W_][\w]*(?:(?:[-./@:#\\+]|'(?=\d))+\w+)*|\d+")
"""A value with the signs inside: a path, an address, a date, an amount."""
_NUMBER = regex(r"\d+(?:[.,'\u2019]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
_GROUPED = regex(r"(?<=\d)[.,'\u2019\u00a0\u202f ](?=\d{3}(?!\d))")
_THOUSANDS = regex(r"\d{1,3}(?:[.,'\u2019\u00a0\u202f ]\d{3})+(?:[.,]\d{1,2})?|\d+[.,]\d{1,2}")
"""An amount: only as a whole is it known."""
_ROUND = regex(r" 0\d\d")
_DECIMAL = regex(r"\d+[.,](?:\d{1,2}|\d{4,})")
_DATE = regex(r"(?<![\d.])(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?![\d.])")
_TIME = regex(r"(?<![\d:])(\d{1,2}):(\d{2})(?::\d{2})?(?![\d:])")
_MEASURE = regex(r"\d+[^\W\d_]{1,4}")
"""A number with its unit or its ending: 5kg, 17th."""
_ENTRY_NUMBER = regex(r"(?i)(?:\[|\b(?:entr(?:y|ies)|index(?:es)?)\s+)\d{1,6}(?:\s*(?:[-–,;]|and|to)\s*\d{1,6})*\]?")
_SPACES = regex(rf"[{UNSPACED}]+")
COUNTS_MAX = 2
"""Numbers up to this are not checked: "both", "a second time" become digits."""
DAYS_AROUND = 31
"""A date this close to an entry's own is taken for one of "yesterday" or "next week"."""


@define
class KnownValues:
    """The values of texts: their spellings, their words, and their numbers in one form.

    `times` are the ISO times of entries, which relative dates rest on. `derived` are numbers that follow from a
    call's arguments, such as the last line of a range.
    """

    _text: str
    _words: set[str]
    _numbers: set[str]
    _entries: list[set[str]]
    _days: list[date] = field(factory=list)

    @classmethod
    def of(
        cls, entries: Sequence[str], others: Sequence[str], times: Sequence[str], derived: Sequence[int]
    ) -> "KnownValues":
        """Read the texts of the entries, in their order, and `others` that the model saw."""
        text = "\n".join([*entries, *others, *times]).casefold()
        numbers = set(_numbers_of(text)) | {str(number) for number in derived}
        return cls(
            text, set(_words_of(text)), numbers, [set(_words_of(one.casefold())) for one in entries], _days(times)
        )

    def unknown_in(self, line: str, cited: int) -> list[str]:
        """The values of a line that the texts do not hold, in order. `cited` is how many entries it cites."""
        text = _SPACES.sub(" ", _ENTRY_NUMBER.sub(" ", line.casefold()))
        found = [m[0] for m in PLACEHOLDER.finditer(text) if m[0] not in self._text]
        text = PLACEHOLDER.sub(" ", text)
        for pattern, is_known in ((_DATE, self._knows_date), (_TIME, self._knows_time)):
            found += [m[0] for m in pattern.finditer(text) if m[0] not in self._text and not is_known(m)]
            text = pattern.sub(" ", text)

        def without_names(match: "re.Match[str]") -> str:
            token = match[0]
            if not _is_identifier(token):
                return token
            if token not in self._text and not self._knows_parts(token):
                found.append(token)
            return " "

        numbers = _NUMBER.findall(_TOKEN.sub(without_names, text))
        unknown = [number for number in numbers if not self._knows_number(number, cited)]
        if unknown:
            counts = self._counts(_words_of(text))
            found += [number for number in unknown if number not in counts]
        return list(dict.fromkeys(found))

    def _knows_parts(self, token: str) -> bool:
        """Whether each part of a compound is known, if only elsewhere: `Invoice.total` of `Invoice` and `total`."""
        parts = [part for part in re.split(r"[\W_]+", token) if len(part) > 1]
        return all(part in self._words or self._knows_measure(part) for part in parts if not part.isdecimal()) and all(
            part.lstrip("0") in self._numbers or part in self._words for part in parts if part.isdecimal()
        )

    def _knows_measure(self, part: str) -> bool:
        digits = re.match(r"\d+", part)
        is_measure = bool(_MEASURE.fullmatch(part)) or not part.isascii()
        if digits is None or not is_measure:
            return False
        return digits[0].lstrip("0") in self._numbers or int(digits[0][:7]) <= COUNTS_MAX

    def _knows_number(self, number: str, cited: int) -> bool:
        if not self._numbers.isdisjoint(_forms(number)):
            return True
        parts = re.split(r"[^\d]", number)
        is_list = _THOUSANDS.fullmatch(number) is None or (" " in number and not _ROUND.search(number))
        if len(parts) > 1 and is_list:  # numbers in a row, or a version
            return all((part.lstrip("0") or "0") in self._numbers for part in parts)
        whole = int(number) if number.isdecimal() and len(number) < 7 else -1
        return 0 <= whole <= COUNTS_MAX or whole in (cited, len(self._entries))

    def _counts(self, words: Iterable[str]) -> set[str]:
        """How many entries hold each of some words: a line may count them."""
        longer = {word for word in words if len(word) > 2}
        return {str(sum(word in entry for entry in self._entries)) for word in longer} - {"0"}

    def _knows_date(self, match: "re.Match[str]") -> bool:
        """Whether a date is known in other words, or follows from the time of an entry."""
        first, _, month, last = match.groups()
        year, day = (first, last) if len(first) == 4 else (last, first)
        if len(year) != 4:
            return all(part.lstrip("0") in self._numbers for part in (first, month, last))
        try:
            meant = date(int(year), int(month), int(day))
        except ValueError:
            return False
        if any(abs(meant - one) <= timedelta(days=DAYS_AROUND) for one in self._days):
            return True
        return year in self._numbers and day.lstrip("0") in self._numbers

    def _knows_time(self, match: "re.Match[str]") -> bool:
        """Whether a time is known in other words: 9 am is 09:00, 3 pm is 15:00."""
        hour = int(match[1])
        return match[2] == "00" and any(str(one) in self._numbers for one in (hour, hour - 12) if one > 0)


def _is_identifier(token: str) -> bool:
    """Whether a token is a name of something: letters with digits, or signs that prose does not put inside words."""
    if any(map(str.isdigit, token)):
        return any(map(str.isalpha, token)) or bool(re.search(r"\d[-/:#@]\d", token))
    if "_" in token.strip("_") or "@" in token or "\\" in token:
        return True
    parts = token.split(".")
    return len(parts) > 1 and all(len(part) > 1 for part in parts) and not token.endswith(".")


def _words_of(text: str) -> Iterator[str]:
    yield from re.findall(r"[^\W_]+", _SPACES.sub(" ", text))


def _numbers_of(text: str) -> Iterator[str]:
    """Every number of a text, in each of its forms."""
    for found in _NUMBER.findall(text):
        yield from _forms(found)
    for found in re.findall(r"\d+", text):
        yield found.lstrip("0") or "0"


def _forms(number: str) -> Iterator[str]:
    """A number without the signs between thousands, and without zeros at its ends."""
    plain = _GROUPED.sub("", number)
    for form in (number, plain):
        yield form
        yield form.lstrip("0") or "0"
        if _DECIMAL.fullmatch(form):
            yield form.replace(",", ".")
            yield form.replace(",", ".").rstrip("0").rstrip(".")


def _days(times: Sequence[str]) -> list[date]:
    found = {time[:10] for time in times if time}
    return [date.fromisoformat(day) for day in sorted(found) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", day)]
