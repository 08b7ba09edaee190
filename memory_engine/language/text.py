"""Text analysis for search and comparison: case folding, words, stop words, stems.

Search finds a text by its terms, in order: words without case, accents and English endings, irregular forms as their
base word, and no stop words except negations. Short texts are compared by their features: stems, trigrams of words, and
character pairs in scripts without blanks between words.
"""

import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Protocol

from memory_engine.core.lazy import regex
from memory_engine.language.lists import content_of, data_file, word_lists

UNSPACED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts without blanks between words, for a character class: Thai to Tibetan, Burmese, Khmer, kana, Han."""
COMPOUND_WORD = regex(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+(?:['\u2019.,:/@+\-]+[^\W{UNSPACED}]+)*")
"""Word as written, with inner punctuation (don't, 7:30, e-mail, a.b@c.de), or a run of an unspaced script."""
ASCII_WORD = regex(r"[0-9A-Za-z_]++(?:['.,:/@+\-]++[0-9A-Za-z_]++)*+")
"""`COMPOUND_WORD` for text without letters beyond ASCII, twice as fast."""
_MARKS = "\u2026\u201c\u201d\u2013\u2014"
"""Marks that English prose has beyond ASCII, and that belong to no word."""
_IS_UNSPACED = regex(rf"[{UNSPACED}]")
_SPACELESS = UNSPACED + "\uac00-\ud7af"
"""Hangul has blanks, but between phrases: the particles in a query seldom match those in a text."""
_SIGNS = "\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d"
"""Vowel signs and similar marks that Python's `\\w` omits: without them, Hindi words fall apart into consonants."""
_WORDS_AND_RUNS = regex(rf"([{_SPACELESS}]+)|((?:[^\W_{_SPACELESS}]|[{_SIGNS}])+)")
_ASCII_WORDS = regex("[0-9A-Za-z]+")
"""`_WORDS_AND_RUNS` for ASCII: to compile the other takes 4 ms."""
_ACCENTS = regex("[\u0300-\u036f]")


@cache
def stop_words() -> frozenset[str]:
    """Return English words that say nothing about the topic of a text."""
    return word_lists("memory_engine.language")["stop"]


@cache
def common_words() -> frozenset[str]:
    """Return stop words and other words that do not distinguish one request from another."""
    return stop_words() | word_lists("memory_engine.language")["common"]


@cache
def _unindexed_words() -> frozenset[str]:
    """Return the words that no text is found by: stop words except negations."""
    return stop_words() - negations()


@cache
def negations() -> frozenset[str]:
    """Return words of negation in several languages."""
    return word_lists("memory_engine.language")["negations"]


def fold_case(text: str) -> str:
    """Return a text without case, accents and equivalent notations."""
    if text.isascii():
        return text.lower()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain).casefold()


_ENDINGS = tuple("s e y i ed ing ic al ful ll ism ion er ator ant ent ogist".split())
"""A word without one of these endings is its own stem.

The algorithm changes only endings, and each of them ends in one of these.
"""
STEM_CHANGES_MAX = 2
"""A word begins like its stem, up to this number of characters before the stem's end: `sensible` of `sensibility`.

Their first letters are the same: `die` of `dying`.
"""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of an English word of `[a-z]`, by Snowball's English algorithm (M. F. Porter's second)."""
    if not word.endswith(_ENDINGS):
        return word  # half of all words; the library takes 25 µs to find that out
    # Not `snowballstemmer.stemmer`: if PyStemmer is installed, it is another release of the algorithm, and an index
    # contains stems. Indexing runs on several threads, so each word gets its own stemmer.
    return _english_stemmer()().stemWord(word)


@cache
def stemmer_version() -> int:
    """Return 16 bits that differ where stems may: a checksum of the list of forms and the installed algorithm.

    If the algorithm's source is not available, only the list is included.
    """
    from zlib import crc32

    forms = crc32(data_file("memory_engine.language", "forms.toml").encode())
    try:
        return crc32(_algorithm(), forms) & 0xFFFF
    except FileNotFoundError:
        return forms & 0xFFFF


_SNOWBALL = "_memory_engine_snowballstemmer"
"""The library's package under a name of ours: its `__init__` would load thirty languages, in 25 ms."""


class _Ending(Protocol):
    s: str
    result: object
    method: object


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str:  # noqa: N802 - the library's name
        """Return the stem of a word."""
        ...


_Endings = Sequence[_Ending]
_Group = tuple[Sequence[int], Mapping[str, object]]
_Results = tuple[Mapping[str, _Group], object] | None


@cache
def _english_stemmer() -> Callable[[], _Stemmer]:
    """Return the class of stemmers of English words. A stemmer has state: give each thread, or each word, its own."""
    base = import_module(f"{_snowball()}.english_stemmer").EnglishStemmer
    first: dict[int, _Results] = {}
    last: dict[int, _Results] = {}

    def results(known: dict[int, _Results], endings: _Endings, at: int) -> _Results:
        known[id(endings)] = found = _results(endings, at)  # the class holds its tables, so each keeps its number
        return found

    class Stemmer(base):  # type: ignore[misc, valid-type]  # the library has no types
        """Finds the longest ending of a table at once; the library searches the table letter by letter."""

        current: str
        cursor: int
        limit: int
        limit_backward: int
        B_Y_found: bool

        def _EnglishStemmer__r_prelude(self) -> bool:  # noqa: N802 - the library's name
            """Mark each `y` that is a consonant; of words without one, say so at once."""
            if "y" in self.current:
                return bool(super()._EnglishStemmer__r_prelude())
            self.B_Y_found = False
            return True

        def find_among(self, endings: _Endings) -> object:
            if (found := first.get(id(endings)) or results(first, endings, 0)) is None:
                return super().find_among(endings)
            groups, otherwise = found
            at = self.cursor
            if (group := groups.get(self.current[at : at + 1])) is not None:
                sizes, by_text = group
                for size in sizes:
                    result = by_text.get(self.current[at : at + size]) if at + size <= self.limit else None
                    if result is not None:
                        self.cursor = at + size
                        return result
            return otherwise

        def find_among_b(self, endings: _Endings) -> object:
            if (found := last.get(id(endings)) or results(last, endings, -1)) is None:
                return super().find_among_b(endings)
            groups, otherwise = found
            at = self.cursor
            if (group := groups.get(self.current[at - 1 : at])) is not None:
                sizes, by_text = group
                for size in sizes:
                    result = by_text.get(self.current[at - size : at]) if at - size >= self.limit_backward else None
                    if result is not None:
                        self.cursor = at - size
                        return result
            return otherwise

    return Stemmer


def _results(endings: _Endings, at: int) -> _Results:
    """Return by their first or last letter the endings' sizes, longest first, with the result of each ending.

    And the result for a word that has none of them. `None` if some have conditions.
    """
    if any(ending.method is not None for ending in endings):
        return None
    by_letter: dict[str, dict[str, object]] = {}
    for ending in endings:
        if ending.s:
            by_letter.setdefault(ending.s[at], {})[ending.s] = ending.result
    groups = {letter: (sorted(set(map(len, texts)), reverse=True), texts) for letter, texts in by_letter.items()}
    return groups, next((ending.result for ending in endings if not ending.s), 0)


def _algorithm() -> bytes:
    """Return the source of the installed algorithm. Raises `FileNotFoundError` if it came without its source."""
    spec = find_spec("snowballstemmer")
    read = getattr(spec.loader, "get_data", None) if spec is not None else None
    if spec is None or spec.origin is None or read is None:
        raise FileNotFoundError("english_stemmer.py")
    source: bytes = read(str(Path(spec.origin).with_name("english_stemmer.py")))
    return source


@cache
def _snowball() -> str:
    """Return the name of the package from which to import the stemmer."""
    spec = find_spec("snowballstemmer")
    if spec is None or spec.submodule_search_locations is None:
        return "snowballstemmer"  # the import that follows raises, or finds it in another way
    home = ModuleType(_SNOWBALL)
    home.__path__ = spec.submodule_search_locations
    sys.modules[_SNOWBALL] = home
    return _SNOWBALL


@cache
def _words_of_forms() -> Mapping[str, str]:
    """Return the base word of each irregular form."""
    lists = content_of("memory_engine.language", "forms.toml", dict[str, str])
    lines = [line.split() for forms in lists.values() for line in forms.splitlines() if line]
    found = {form: word for word, *forms in lines for form in forms}
    return {form: found.get(word, word) for form, word in found.items()}


def words(text: str) -> list[str]:
    """Return the words of a folded text in order; in scripts without blanks between words, whole runs."""
    if text.isascii():
        return _ASCII_WORDS.findall(text)
    return [run or word for run, word in _WORDS_AND_RUNS.findall(text)]


def compound_words(text: str) -> list[str]:
    """Return the words of a text as written (`COMPOUND_WORD`), in order; a run of an unspaced script is one word."""
    return ASCII_WORD.findall(text) if has_ascii_words(text) else COMPOUND_WORD.findall(text)


def has_ascii_words(text: str) -> bool:
    """Return True if a text has nothing beyond ASCII but marks: an ellipsis, double quotation marks, dashes."""
    if text.isascii():
        return True
    for mark in _MARKS:
        text = text.replace(mark, "")
    return text.isascii()


def is_unspaced(text: str) -> bool:
    """Return True if a text begins in a script without blanks between words."""
    return not text.isascii() and _IS_UNSPACED.match(text) is not None


def pairs(run: str) -> list[str]:
    """Return the overlapping character pairs of a run without blanks, which replace words in search and comparison.

    Nie, Gao, Zhang and Zhou, "On the use of words and n-grams for Chinese information retrieval", 2000.
    """
    return [run[n : n + 2] for n in range(max(1, len(run) - 1))]


# Features, for the comparison of short texts.

CHARS_MAX = 8_192
"""Number of characters that are compared; the rest of a longer text is ignored."""
TRIGRAM_SHARE = 0.5
"""Total weight of a word's trigrams relative to the word: enough to tolerate a misspelling or an unknown ending."""
PAIR_WEIGHT = 0.7
WORD_CHARS_MAX = 32
"""Number of characters of a word (an encoded file, a hash) that are cut into trigrams."""
TRIGRAM_WORD_CHARS_MIN = 4


def features(text: str) -> tuple[dict[str, float], dict[str, str]]:
    """Return the weights of a text's features, and the written form of features that are words or pairs.

    Common words count only if a text has no others.
    """
    found = _WORDS_AND_RUNS.findall(fold_case(text[:CHARS_MAX]))
    said = [word for _, word in found if word]
    telling = [word for word in said if word not in common_words()]
    runs = [run for run, _ in found if run]
    weights: dict[str, float] = {}
    shown: dict[str, str] = {}
    for word in telling or ([] if runs else said):
        _add_word(word, weights, shown)
    for run in runs:
        for pair in pairs(run):
            weights["#" + pair] = weights.get("#" + pair, 0.0) + PAIR_WEIGHT
            shown["#" + pair] = pair
    return {feature: sqrt(weight) if weight > 1 else weight for feature, weight in weights.items()}, shown


def _add_word(word: str, weights: dict[str, float], shown: dict[str, str]) -> None:
    feature = "=" + _term(word)
    weights[feature] = weights.get(feature, 0.0) + 1.0
    shown.setdefault(feature, word[:WORD_CHARS_MAX])
    if len(word) < TRIGRAM_WORD_CHARS_MIN:
        return
    padded = f"^{word[:WORD_CHARS_MAX]}$"
    weight = TRIGRAM_SHARE / sqrt(len(padded) - 2)
    for n in range(len(padded) - 2):
        piece = "~" + padded[n : n + 3]
        weights[piece] = weights.get(piece, 0.0) + weight


# Terms, for search.

TEXT_CHARS_MAX = 32_768
"""Number of characters that are analysed; the rest of a longer text is ignored."""
TERM_CHARS_MAX = 64
REMEMBERED_WORDS_MAX = 65_536
"""Size of the cache of words with their terms. A full cache is emptied and fills again."""
REMEMBERED_CHARS_MAX = 32

_PLAIN = regex("[a-z0-9]+")
_SHORTENED = regex("(?<=[^\\W\\d_])['\u2019](?:s|t|d|m|re|ve|ll)(?![^\\W_])")
"""Suffix of a word after an apostrophe: anna's, don't, we've."""
_NEGATED = regex("(?<![^\\W\\d_])[^\\W\\d_]+n['\u2019]t(?![^\\W_])")
"""Don't, isn't, can't, won't."""
_THOUSANDS = regex("(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_ORDINAL = regex("([0-9]+)(?:st|nd|rd|th)")
_COMPOUND = regex(r"[^\w]*([^\W_]+(?:[-_./:@+'\u2019\u2010\u2011][^\W_]+)+)[^\w]*")
"""Compound word: ABC-123, user_id, foo.bar, 7:30, o'neill."""
_NUMBERS_APART = regex(r"(?<=[0-9])[^\w](?=[0-9])")
_NUMBER_SIGN = "\u00b7"
_EDGES = "".join(chr(n) for n in range(128) if not chr(n).isalnum())
_SPACED = {ord(sign): " " for sign in _EDGES}
_JOINS = frozenset("-_./:@+")


def terms(text: str) -> list[str]:
    """Return the analysed words of a text in order, each 1 to 64 characters of `[a-z0-9]` and non-ASCII characters.

    A compound word yields the whole word and then its parts: `user_id` gives `userid`, `user`, `id`. Scripts without
    blanks between words (Chinese, Japanese, Korean, Thai, ...) yield overlapping character pairs. Stop words are
    dropped unless there is nothing else; negations are kept, and "don't" gives `not`. Only the first 32,768 characters
    count. Accepts any string.
    """
    parts = fold_case(text[:TEXT_CHARS_MAX]).split()
    found = list(chain.from_iterable(map(_REMEMBERED.__getitem__, parts)))
    return found or [term for word in parts for term in _analysed(word, frozenset())]


def has_any(text: str, wanted: frozenset[str]) -> bool:
    """Return True if a text has any of the wanted terms. Stops reading at the first one."""
    parts = fold_case(text[:TEXT_CHARS_MAX]).split()
    found = False
    for some in map(_REMEMBERED.__getitem__, parts):
        if not wanted.isdisjoint(some):
            return True
        found = found or bool(some)
    return not (found or wanted.isdisjoint(terms(text)))


class TermsSought(dict[str, tuple[str, ...]]):
    """Reads texts for a few terms, without the stems of words that cannot be one of them: half of what terms cost.

    Keep it as long as you read texts of one moment: it caches every word that it meets.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        super().__init__()
        self._beginnings = tuple({term[: max(1, len(term) - STEM_CHANGES_MAX)] for term in wanted})

    def __missing__(self, word: str) -> tuple[str, ...]:
        found = _REMEMBERED.get(word)
        if found is None:
            core = word.strip(_EDGES)
            is_other = core.isascii() and core.isalpha() and not core.startswith(self._beginnings)
            if is_other and len(core) <= TERM_CHARS_MAX and core not in _words_of_forms():
                found = () if core in _unindexed_words() else (core,)
            else:
                found = _REMEMBERED[word]
        self[word] = found
        return found

    def read(self, text: str) -> list[str]:
        """Return as many terms as `terms` does, in order; a word stands for its term where that is not wanted."""
        parts = fold_case(text[:TEXT_CHARS_MAX]).split()
        return list(chain.from_iterable(map(self.__getitem__, parts))) or terms(text)


class _Remembered(dict[str, tuple[str, ...]]):
    """Cache of the terms of each blank-separated word of a text. Bounded; safe for use by several threads."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        found = _analysed(word, _unindexed_words())
        if len(word) <= REMEMBERED_CHARS_MAX:
            if len(self) >= REMEMBERED_WORDS_MAX:
                self.clear()
            self[word] = found
        return found


_REMEMBERED = _Remembered()


def _analysed(word: str, unwanted: frozenset[str]) -> tuple[str, ...]:
    """Return the terms of a blank-separated part of a folded text."""
    core = word.strip(_EDGES)
    if core.isascii():
        if core.isalnum():
            return () if core in unwanted else (_term(core),)
        parts = core.translate(_SPACED).split()
        if len(core) == sum(map(len, parts)) + len(parts) - 1 and "," not in core and "'" not in core:
            return _of_parts(core, parts, unwanted)
    return _of_any(word, unwanted)


def _of_parts(core: str, parts: list[str], unwanted: frozenset[str]) -> tuple[str, ...]:
    """Return the terms of a common compound: one character between each two parts."""
    found = [_term(part) for part in parts if part not in unwanted]
    whole, at = parts[0], len(parts[0])
    for last, part in pairwise(parts):
        if core[at] not in _JOINS:
            return tuple(found)
        whole += _NUMBER_SIGN + part if last[-1].isdigit() and part[0].isdigit() else part
        at += 1 + len(part)
    return (_term(whole), *found)


def _of_any(word: str, unwanted: frozenset[str]) -> tuple[str, ...]:
    word = _THOUSANDS.sub("", _SHORTENED.sub("", _NEGATED.sub("not", word)))
    found: list[str] = []
    if (compound := _COMPOUND.fullmatch(word)) is not None:
        whole = _NUMBERS_APART.sub(_NUMBER_SIGN, compound[1])
        whole = "".join(sign for sign in whole if sign.isalnum() or sign == _NUMBER_SIGN)
        found.append(_term(whole))
    if word.isascii():
        found += [_term(part) for part in _PLAIN.findall(word) if part not in unwanted]
    else:
        for run, part in _WORDS_AND_RUNS.findall(word):
            if run:
                found += pairs(run)
            elif part not in unwanted:
                found.append(_term(part))
    return tuple(found)


def _term(word: str) -> str:
    """Return the term of a single folded word: English words stemmed, ordinals as numbers."""
    if not word.isascii():
        return word[:TERM_CHARS_MAX]
    if word.isalpha():
        return stem(_words_of_forms().get(word, word)[:TERM_CHARS_MAX])
    if word.endswith(("st", "nd", "rd", "th")) and (ordinal := _ORDINAL.fullmatch(word)) is not None:
        word = ordinal[1]
    return word[:TERM_CHARS_MAX]
