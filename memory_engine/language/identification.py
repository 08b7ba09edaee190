"""Language identification by script and function words: accurate enough to choose headings, without a model."""

from collections.abc import Mapping
from functools import cache

from memory_engine.core.lazy import regex
from memory_engine.language.lists import word_lists
from memory_engine.language.text import COMPOUND_WORD

CHARS_MAX = 8_000
"""Number of characters that are examined; the rest of a longer text is ignored."""
WORDS_MIN = 4
"""Minimum number of function words for a decision."""
SHARE_MIN = 0.12
"""Minimum share of function words. In running text it is a third to a half; in lists of values it is close to zero."""
LEAD_MIN = 1.2
"""Minimum ratio of the first language to the second: related languages share many words."""
SCRIPT_SHARE_MIN = 0.3
KANA_SHARE_MIN = 0.1
"""Minimum share of kana in Japanese: Japanese is written in kana and Han, Chinese in Han alone."""
_LETTERS = regex(r"[^\W\d_]")
_SCRIPTS = (
    ("ja", "[\u3040-\u30ff]"),
    ("zh", "[\u3400-\u9fff]"),
    ("ko", "[\uac00-\ud7af]"),
    ("ru", "[\u0400-\u04ff]"),
    ("ar", "[\u0600-\u06ff]"),
)


def language_of(text: str) -> str:
    """Return the ISO 639-1 code of the language that a text is mostly written in; `""` if it is not clear."""
    text = text[:CHARS_MAX]
    return _by_script(text) or _by_words(text)


def _by_script(text: str) -> str:
    if text.isascii():
        return ""
    letters = len(_LETTERS.findall(text))
    signs = {language: len(regex(script).findall(text)) for language, script in _SCRIPTS}
    signs["ja"] = signs["ja"] + signs["zh"] if signs["ja"] > KANA_SHARE_MIN * (signs["ja"] + signs["zh"]) else 0
    language = max(signs, key=signs.__getitem__)
    return language if signs[language] > SCRIPT_SHARE_MIN * letters else ""


def _by_words(text: str) -> str:
    found = [part for match in COMPOUND_WORD.finditer(text.lower()) for part in match.group().split("'")]
    worth: dict[str, float] = {}
    for word in found:
        languages = _languages_of().get(word, ())
        for language in languages:
            worth[language] = worth.get(language, 0.0) + 1 / len(languages)
    if not worth:
        return ""
    (language, most), *others = sorted(worth.items(), key=lambda item: -item[1])
    is_clear = not others or most >= LEAD_MIN * others[0][1]
    return language if is_clear and most >= max(WORDS_MIN, SHARE_MIN * len(found)) else ""


@cache
def function_words() -> frozenset[str]:
    """Return the function words of all languages that have a list."""
    return frozenset(_languages_of())


@cache
def _languages_of() -> Mapping[str, tuple[str, ...]]:
    """Return a mapping from each function word to the languages that have it."""
    found: dict[str, list[str]] = {}
    for language, listed in word_lists("memory_engine.language", "function_words.toml").items():
        for word in sorted(listed):
            found.setdefault(word, []).append(language)
    return {word: tuple(languages) for word, languages in found.items()}
