"""What texts are compared by: words without endings, pieces of words, pairs of signs where no blanks part words."""

import unicodedata
from math import sqrt

from memory_engine.regex import regex

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
_TOKENS = regex(rf"([{_SPACELESS}]+)|((?:[^\W_{_SPACELESS}]|[{_SIGNS}])+)")
_ACCENTS = regex("[\u0300-\u036f]")

STOP_WORDS = frozenset(
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


def stem(word: str) -> str:
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
    found = _TOKENS.findall(fold(text))
    words = [word for _, word in found if word]
    telling = [word for word in words if word not in STOP_WORDS]
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
    feature = "=" + stem(word)
    weights[feature] = weights.get(feature, 0.0) + 1.0
    shown.setdefault(feature, word[:WORD_CHARS_MAX])
    if len(word) < TRIGRAM_WORD_CHARS_MIN:
        return
    padded = f"^{word[:WORD_CHARS_MAX]}$"
    weight = TRIGRAM_SHARE / sqrt(len(padded) - 2)
    for n in range(len(padded) - 2):
        piece = "~" + padded[n : n + 3]
        weights[piece] = weights.get(piece, 0.0) + weight
