"""The analysis of texts: the terms that they are found by, and the features that they are compared by.

Terms stand in order, without case, accents, English endings and words that say nothing. Features are words without
endings, pieces of words, and pairs of signs where no blanks part words.
"""

import unicodedata
from collections.abc import Iterable
from itertools import chain, pairwise
from math import sqrt

from memory_engine.core.lazy import regex

CHARS_MAX = 8_192
"""Of a longer text the beginning is compared."""
TRIGRAM_SHARE = 0.5
"""A word's trigrams together weigh this much beside the word: enough to bear a misspelling or an unknown ending."""
PAIR_WEIGHT = 0.7
WORD_CHARS_MAX = 32
"""Of a longer word (an encoded file, a hash) only this much is cut into trigrams."""
TRIGRAM_WORD_CHARS_MIN = 4
STEM_CHARS_MIN = 4
DOUBLED = regex(r"([bdgmnprt])\1$")

_SPACELESS = (  # Thai to Tibetan, Burmese, Khmer, kana, Han, Hangul
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
)
_SIGNS = "\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d"
"""Vowel signs and the like, which Python's `\\w` leaves out: without them Hindi falls into consonants."""
WORDS_AND_RUNS = regex(rf"([{_SPACELESS}]+)|((?:[^\W_{_SPACELESS}]|[{_SIGNS}])+)")
_ACCENTS = regex("[\u0300-\u036f]")

COMMON_WORDS = frozenset(
    "a about after again all also am an and any are as at be been before being but by can could did do does doing done"
    " for from had has have having he her here him his how i if in into is it its just let like make me more most my no"
    " not now of off on once one only or other our out over own please same she should so some such than that the their"
    " them then there these they this those through to too under until up use used user using very want was we were"
    " what when where which while who whom why will with would you your".split()
)
_ENDINGS = (("ings", ""), ("ing", ""), ("ies", "y"), ("ied", "y"), ("ed", ""), ("ly", ""), ("es", ""), ("s", ""))


def fold(text: str) -> str:
    """The text's beginning without case, accents and ways of writing that mean the same."""
    text = text[:CHARS_MAX]
    if text.isascii():
        return text.casefold()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain).casefold()


def cut_ending(word: str) -> str:
    """A word without a common English ending; others are left alone. Not linguistics: both sides are cut alike."""
    if not word.isascii() or not word.isalpha():
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) + len(instead) >= STEM_CHARS_MIN - 1:
            if ending == "s" and word.endswith(("ss", "us", "is")):
                break
            word = word[: len(word) - len(ending)] + instead
            break
    word = DOUBLED.sub(r"\1", word)
    return word[:-1] if word.endswith("e") and len(word) >= STEM_CHARS_MIN else word


def features(text: str) -> tuple[dict[str, float], dict[str, str]]:
    """Features of a text with their weights, and for those that are words or pairs how the text has them.

    Words of little meaning count only where a text has no others.
    """
    found = WORDS_AND_RUNS.findall(fold(text))
    words = [word for _, word in found if word]
    telling = [word for word in words if word not in COMMON_WORDS]
    runs = [run for run, _ in found if run]
    weights: dict[str, float] = {}
    shown: dict[str, str] = {}
    for word in telling or ([] if runs else words):
        _add_word(word, weights, shown)
    for run in runs:
        for n in range(max(1, len(run) - 1)):
            pair = run[n : n + 2]
            weights["#" + pair] = weights.get("#" + pair, 0.0) + PAIR_WEIGHT
            shown["#" + pair] = pair
    return {feature: sqrt(weight) if weight > 1 else weight for feature, weight in weights.items()}, shown


def _add_word(word: str, weights: dict[str, float], shown: dict[str, str]) -> None:
    feature = "=" + cut_ending(word)
    weights[feature] = weights.get(feature, 0.0) + 1.0
    shown.setdefault(feature, word[:WORD_CHARS_MAX])
    if len(word) < TRIGRAM_WORD_CHARS_MIN:
        return
    padded = f"^{word[:WORD_CHARS_MAX]}$"
    weight = TRIGRAM_SHARE / sqrt(len(padded) - 2)
    for n in range(len(padded) - 2):
        piece = "~" + padded[n : n + 3]
        weights[piece] = weights.get(piece, 0.0) + weight


TEXT_CHARS_MAX = 32_768
"""Of a longer text the beginning counts."""
TERM_CHARS_MAX = 64
REMEMBERED_WORDS_MAX = 65_536
"""Words as they stand in texts, with what became of them. When they are more, all are forgotten: they come back."""
REMEMBERED_CHARS_MAX = 32

STOP_WORDS = frozenset(
    "a about above again all also am an and any are aren as at be because been before being below between both but by"
    " can cannot could couldn did didn do does doesn doing don down during each either else ever for from further had"
    " hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself"
    " just ll let me might mightn more most must mustn my myself neither no nor not now of off oh ok okay on once only"
    " or other our ours ourselves out over own please quite rather re really same shall shan she should shouldn so"
    " some such than that the their theirs them themselves then there these they this those though through to too"
    " under until up upon us ve very was wasn we were weren what when where whether which while who whom whose why"
    " will with within won would wouldn yeah yes yet you your yours yourself yourselves".split()
)

_PLAIN = regex("[a-z0-9]+")
_SHORTENED = regex("(?<=[^\\W\\d_])['\u2019](?:s|t|d|m|re|ve|ll)(?![^\\W_])")
"""What an apostrophe leaves at a word's end: anna's, don't, we've."""
_THOUSANDS = regex("(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_ORDINAL = regex("([0-9]+)(?:st|nd|rd|th)")
_COMPOUND = regex(r"[^\w]*([^\W_]+(?:[-_./:@+'\u2019\u2010\u2011][^\W_]+)+)[^\w]*")
"""One word of several: ABC-123, user_id, foo.bar, 7:30, o'neill."""
_NUMBERS_APART = regex(r"(?<=[0-9])[^\w](?=[0-9])")
_NUMBER_SIGN = "\u00b7"
_EDGES = "".join(chr(n) for n in range(128) if not chr(n).isalnum())
_SPACED = {ord(sign): " " for sign in _EDGES}
_JOINS = frozenset("-_./:@+")


def terms(text: str) -> list[str]:
    """The text's analysed words in its order, each of `[a-z0-9]` and signs beyond ASCII, of 1 to 64 characters.

    A word of several parts stands as a whole and then by its parts: `user_id` gives `userid`, `user`, `id`.
    Writing without blanks between words (Chinese, Japanese, Korean, Thai, ...) gives overlapping pairs of signs.
    Stop-words are dropped unless there is nothing else. The first 32,768 characters count; any string will do.
    """
    text = text[:TEXT_CHARS_MAX]
    text = text.lower() if text.isascii() else _folded(text)
    words = text.split()
    found = list(chain.from_iterable(map(_REMEMBERED.__getitem__, words)))
    return found or [term for word in words for term in _analysed(word, frozenset())]


def stem(word: str) -> str:
    """An English word of `[a-z]` without its endings, by Porter's algorithm.

    M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. Words of up to two letters stay.
    """
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _last_y, _long_ending, _adjective, _noun, _last_e):
        word = step(word)
    return word


class _Remembered(dict[str, tuple[str, ...]]):
    """The terms of each word as it stood in a text, between blanks. Bounded; safe between threads."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        found = _analysed(word, STOP_WORDS)
        if len(word) <= REMEMBERED_CHARS_MAX:
            if len(self) >= REMEMBERED_WORDS_MAX:
                self.clear()
            self[word] = found
        return found


_REMEMBERED = _Remembered()


class _Stems(dict[str, str]):
    """The stems of words, whatever stood around them. Bounded."""

    def __missing__(self, word: str) -> str:
        if len(self) >= REMEMBERED_WORDS_MAX:
            self.clear()
        found = self[word] = stem(word)
        return found


_STEMS = _Stems()


def _folded(text: str) -> str:
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain).casefold()


def _analysed(word: str, stop_words: frozenset[str]) -> tuple[str, ...]:
    """The terms of what stood between two blanks, folded."""
    core = word.strip(_EDGES)
    if core.isascii():
        if core.isalnum():
            return () if core in stop_words else (_term(core),)
        parts = core.translate(_SPACED).split()
        if len(core) == sum(map(len, parts)) + len(parts) - 1 and "," not in core and "'" not in core:
            return _of_parts(core, parts, stop_words)
    return _of_any(word, stop_words)


def _of_parts(core: str, parts: list[str], stop_words: frozenset[str]) -> tuple[str, ...]:
    """The common case of a compound: one sign between each two parts."""
    found = [_term(part) for part in parts if part not in stop_words]
    whole, at = parts[0], len(parts[0])
    for last, part in pairwise(parts):
        if core[at] not in _JOINS:
            return tuple(found)
        whole += _NUMBER_SIGN + part if last[-1].isdigit() and part[0].isdigit() else part
        at += 1 + len(part)
    return (_term(whole) if whole.isascii() else whole[:TERM_CHARS_MAX], *found)


def _of_any(word: str, stop_words: frozenset[str]) -> tuple[str, ...]:
    word = _THOUSANDS.sub("", _SHORTENED.sub("", word))
    found: list[str] = []
    if (compound := _COMPOUND.fullmatch(word)) is not None:
        whole = _NUMBERS_APART.sub(_NUMBER_SIGN, compound[1])
        whole = "".join(sign for sign in whole if sign.isalnum() or sign == _NUMBER_SIGN)
        found.append(_term(whole) if whole.isascii() else whole[:TERM_CHARS_MAX])
    if word.isascii():
        found += [_term(part) for part in _PLAIN.findall(word) if part not in stop_words]
    else:
        for run, part in WORDS_AND_RUNS.findall(word):
            if run:
                found += [run[n : n + 2] for n in range(max(1, len(run) - 1))]
            elif part not in stop_words:
                found.append(_term(part) if part.isascii() else part[:TERM_CHARS_MAX])
    return tuple(found)


def _term(word: str) -> str:
    if word.isalpha():
        return _STEMS[word[:TERM_CHARS_MAX]]
    if word.endswith(("st", "nd", "rd", "th")) and (ordinal := _ORDINAL.fullmatch(word)) is not None:
        word = ordinal[1]
    return word[:TERM_CHARS_MAX]


# Porter's steps


def _shape(word: str) -> str:
    """`v` for a vowel, `c` for a consonant; y is a vowel after a consonant."""
    shape = ""
    for sign in word:
        vowel = sign in "aeiou" or (sign == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """How many times vowels are followed by consonants."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Whether it ends consonant, vowel, consonant, the last not w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _ends_doubled(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word).endswith("cc")


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    cut = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else ""
    if not cut or "v" not in _shape(cut):
        return word
    if cut.endswith(("at", "bl", "iz")):
        return cut + "e"
    if _ends_doubled(cut) and cut[-1] not in "lsz":
        return cut[:-1]
    return cut + "e" if _measure(cut) == 1 and _ends_short(cut) else cut


def _last_y(word: str) -> str:
    """As in his later English stemmer: after a vowel y stays, or `deploy` would not meet `deployment`."""
    return word[:-1] + "i" if word.endswith("y") and word[-2] not in "aeiou" and "v" in _shape(word[:-1]) else word


def _by_last_two(pairs: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Endings with what stands in their place, by the last two letters, in the order given."""
    found: dict[str, list[tuple[str, str]]] = {}
    for ending, instead in pairs:
        found.setdefault(ending[-2:], []).append((ending, instead))
    return found


_LONG_ENDINGS = _by_last_two(
    (ending, instead)
    for ending, _, instead in (
        pair.partition(">")
        for pair in (
            "ational>ate tional>tion enci>ence anci>ance izer>ize abli>able alli>al entli>ent eli>e ousli>ous"
            " ization>ize ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble"
        ).split()
    )
)
_ADJECTIVES = _by_last_two(
    (
        ("icate", "ic"),
        ("ative", ""),
        ("alize", "al"),
        ("iciti", "ic"),
        ("ical", "ic"),
        ("ful", ""),
        ("ness", ""),
    )
)
_NOUNS = _by_last_two(
    (ending, "") for ending in "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic ou".split()
)
_NONE: list[tuple[str, str]] = []


def _long_ending(word: str) -> str:
    for ending, instead in _LONG_ENDINGS.get(word[-2:], _NONE):
        if word.endswith(ending):
            cut = word.removesuffix(ending)
            return cut + instead if _measure(cut) > 0 else word
    return word


def _adjective(word: str) -> str:
    for ending, instead in _ADJECTIVES.get(word[-2:], _NONE):
        if word.endswith(ending):
            cut = word.removesuffix(ending)
            return cut + instead if _measure(cut) > 0 else word
    return word


def _noun(word: str) -> str:
    for ending, _ in _NOUNS.get(word[-2:], _NONE):
        if word.endswith(ending):
            cut = word.removesuffix(ending)
            kept = _measure(cut) <= 1 or (ending == "ion" and not cut.endswith(("s", "t")))
            return word if kept else cut
    return word


def _last_e(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
