"""Names of people, companies and products, by their capitals and by neighbouring words.

A word with a capital is taken for a name, unless `words.toml` lists it as an ordinary word.
"""

import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import pairwise

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.dates import full_names
from memory_engine.language.lists import word_lists
from memory_engine.language.rough import begins_sentence
from memory_engine.language.text import stop_words
from memory_engine.views.patterns.shapes import Span

_WORD = regex(r"(?<![^\W_])[^\W\d_]++(?:['’.&\-\u2010\u2011][^\W\d_]++(?!\d))*+(?!\d)")
_POSSESSIVE = regex(r"['’]s?$")
_JOINT = regex(r"\s?[&+/\-\u2010-\u2015]?\s?|\.\s?|['’]s?\s")
_TITLED = regex(
    r"(?i)(?<!\w)(?:mr|mrs|mx|miss|dr|prof|ing|herr|herrn|frau|señora?|srta|sra|monsieur|madame|mme|mlle|signora?|sig"
    r"|dhr|mevr|mevrouw|meneer|pani|fru|господин|госпожа|\u0433-\u043d|\u0433-\u0436\u0430)"  # also abbreviated
    r"(?:\.\s?|\s)(?P<name>[^\W\d_][\w'’\-]*)"
    r"|(?<!\w)(?:Ms|ms\.)\s?(?P<ms>[^\W\d_][\w'’\-]*)"
    r"|(?<!\w)(?:my name is|ich hei(?:ß|ss)e|je m['’]appelle|me llamo|mi chiamo)\s"
    r"(?P<self>[^\W\d_][\w'’\-]*(?:\s[^\W\d_][\w'’\-]*)?)"
)
_COMPANY = regex(
    r"(?i)(?<![\w&'’\-])(?:(?!(?:a|an|and|at|by|de|der|die|et|for|from|in|la|le|of|our|the|to|und|with|y)\s)"
    r"[^\W\d_][\w&'’\-]*+\s){1,2}(?:gmbh|inc|incorporated|ltd|llc|llp|plc|corp|pty|sarl|s\.a\.r\.l|srl|s\.r\.l"
    r"|s\.p\.a|s\.a|b\.v|n\.v|k\.k|\u043e\u043e\u043e|\u0437\u0430\u043e|\u043e\u0430\u043e)(?!\w)\.?"
)
_HAN = "\u3400-\u9fff\uf900-\ufaff"
_UNCASED = regex(
    rf"[{_HAN}]{{1,4}}(?:さん|様|さま|氏|くん|先生|小姐|女士|经理|經理|老师|部長|社長|課長|总裁|總裁)"
    r"|[\u30a1-\u30fa\u30fc・]{2,20}(?:さん|様|さま|氏|くん|社長|部長)|[\uac00-\ud7a3]{2,4}\s?(?:씨|님|부장|과장|사장)"
    rf"|(?:株式会社|有限会社)[{_HAN}\u30a1-\u30fa\u30fcA-Za-z・]{{1,12}}|[{_HAN}\u30a1-\u30fa\u30fc]{{2,12}}(?:株式会社|有限公司|公司|集团|集團)"
    r"|(?:السيد|السيدة|الدكتور)\s\w+(?:\s\w+)?"
)
_NO_CAPITALS = regex(
    rf"[\u0590-\u08ff\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff{_HAN}\uac00-\ud7a3]{{2}}"
)


class _Known(msgspec.Struct, frozen=True):
    """Words that are known not to be names."""

    common: frozenset[str]
    """A sentence's first word is kept if it is one of these."""
    business: frozenset[str]
    openers: frozenset[str]
    calendar: frozenset[str]
    acronyms: frozenset[str]
    particles: frozenset[str]


@cache
def _known() -> _Known:
    lists = word_lists("memory_engine.views.patterns")
    return _Known(
        common=lists["business"] | lists["function"],
        business=lists["business"],
        openers=lists["openers"] | stop_words(),
        calendar=lists["calendar"].union(
            full_names("months", "en", "de"), full_names("weekdays", "en", "de", "fr", "es")
        ),
        acronyms=lists["acronyms"],
        particles=lists["particles"],
    )


def generic_parts() -> frozenset[str]:
    """Parts of ids that name no one."""
    return word_lists("memory_engine.views.patterns")["generic_parts"]


class _Word(msgspec.Struct, frozen=True):
    """A word, and whether it is taken for a name. One that is kept becomes part of a neighbouring name."""

    text: str
    start: int
    end: int
    is_name: bool = False
    is_kept: bool = False


class Names(msgspec.Struct, frozen=True):
    """Finds names. `allow` are words that are not names, in lower case, in addition to known ones."""

    allow: Collection[str] = frozenset()

    def __call__(self, text: str) -> Iterator[Span]:
        """The spans of names: words with capitals but known ones, words after a title, words before a firm's form."""
        for match in _TITLED.finditer(text):
            yield next(match.span(group) for group in ("name", "ms", "self") if match[group])
        for pattern in (_COMPANY, _UNCASED):
            yield from (match.span() for match in pattern.finditer(text))
        yield from self._capitals(text)

    def _capitals(self, text: str) -> Iterator[Span]:
        words = [self._read(text, match) for match in _WORD.finditer(text)]
        names = [n for n, word in enumerate(words) if word.is_name]
        taken = set(names)
        for n in names:
            for step in (-1, 1):
                at = n + step
                while 0 <= at < len(words) and words[at].is_kept and _touch(text, words[at - step], words[at]):
                    taken.add(at)
                    at += step
        for n in sorted(taken):
            yield words[n].start, words[n].end
            between = n + 1
            while between < len(words) and between - n <= 2 and words[between].text in _known().particles:
                between += 1
            if between < len(words) and between in taken and _all_touch(text, words[n : between + 1]):
                yield words[n].start, words[between].end

    def _read(self, text: str, match: re.Match[str]) -> _Word:
        said = match.group()
        core = _POSSESSIVE.sub("", said)
        start, end = match.start(), match.start() + len(core)
        if not any(sign.isupper() or sign.istitle() for sign in core):
            return _Word(said, start, end)
        plain = core.casefold()
        if core in _known().acronyms or plain in self.allow:
            return _Word(said, start, end)
        if plain in _known().calendar and core[1:].islower():
            return _Word(said, start, end, is_kept=True)
        if self._is_common(core) and begins_sentence(text, start):
            return _Word(said, start, end, is_kept=plain in _known().business and plain not in _known().openers)
        return _Word(said, start, end, is_name=True)

    def _is_common(self, word: str) -> bool:
        if not (word[1:].islower() or len(word) == 1):
            return False
        plain = word.lower().replace("’", "'")
        return plain in _known().common or all(part in _known().common for part in re.split(r"[\-\u2010\u2011]", plain))


def _touch(text: str, one: _Word, other: _Word) -> bool:
    first, second = sorted((one, other), key=lambda word: word.start)
    return _JOINT.fullmatch(text, first.end, second.start) is not None


def _all_touch(text: str, words: list[_Word]) -> bool:
    return all(_touch(text, one, other) for one, other in pairwise(words))


def has_no_capitals(text: str) -> bool:
    """Whether part of a text is in a script without capitals, in which names cannot be recognised."""
    return _NO_CAPITALS.search(text) is not None
