"""Detects from its form how strongly a sentence binds.

Word lists in a few languages, and forms that work in any language (a word in capitals), raise a statement's rank. A
statement that matches none of them stays in the brief all the same.
"""

from functools import cache

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.identification import function_words
from memory_engine.language.phrases import denies, holds, matches, phrase_list
from memory_engine.language.rough import between_marks
from memory_engine.language.sentences import words
from memory_engine.language.text import negations, stop_words
from memory_engine.views.brief.statements import terms_of

READ_CHARS_MAX = 1_000
ACRONYM_CHARS_MAX = 6
"""A longer word in capitals is no acronym."""
_SHOUTED = regex(r"(?<![^\s(\"])[^\W\d_]{3,}(?![\w.#_])")
_FIRST_WORD = regex("\\W*([\\w'’]+)(?![\\w,!.\uff0c、])")
_CONTRAST = regex("\\w[,;\uff0c\u3001] (\\w+)(?= \\w)")


class Force(msgspec.Struct, frozen=True, gc=False):
    """The force of a sentence, by its form: it forbids, binds otherwise, prefers, or corrects an earlier statement."""

    forbids: bool = False
    binds: bool = False
    prefers: bool = False
    corrects: bool = False

    @property
    def is_binding(self) -> bool:
        """True if it forbids, binds or corrects. A preference alone does not count."""
        return self.forbids or self.binds or self.corrects

    @property
    def factor(self) -> float:
        """Factor by which this form multiplies a statement's worth."""
        if self.forbids:
            return 2.2
        if self.binds or self.corrects:
            return 1.7
        return 1.4 if self.prefers else 1.0


def force_of(text: str) -> Force:
    """Classify a sentence by its form."""
    text = text[:READ_CHARS_MAX]
    return Force(
        forbids=_tells_others("forbids", text) or _begins_with_no(text),
        binds=_tells_others("binds", text) or _is_stressed(text) or _contrasts(text),
        prefers=holds("prefers", text, len(text)),
        corrects=holds("corrects", text, len(text)),
    )


def _tells_others(name: str, text: str) -> bool:
    """Return True if it forbids or obliges others: "I want you to never …", but not "I never got it"."""
    found = ((text[: match.start()], match.group().casefold()) for match in matches(name, text))
    return any(not _of_speaker(before) and not _describes(before, phrase) for before, phrase in found)


def _describes(before: str, phrase: str) -> bool:
    """Return True if "do not" has a subject that is not addressed: "the tests do not pass"."""
    if phrase not in phrase_list("imperatives"):
        return False
    clause = [word.casefold() for word in words(between_marks(before)[-1])]
    connected = [n for n, word in enumerate(clause, 1) if word in phrase_list("before_imperatives")]
    said = clause[connected[-1] if connected else 0 :]
    return bool(said) and said[0] not in phrase_list("adverbials") and phrase_list("addressees").isdisjoint(said)


def _of_speaker(before: str) -> bool:
    """Return True if the clause that `before` ends in is about its speaker."""
    clause = [word.casefold() for word in words(between_marks(before)[-1])]
    for word in reversed(clause):
        if word in phrase_list("addressees"):
            return False
        if word in phrase_list("tellers"):
            return True
    return False


def _contrasts(text: str) -> bool:
    """Return True if it contrasts what is meant with what is not: "the green one, not the blue one"."""
    return any(found[1].casefold() in negations() for found in _CONTRAST.finditer(text))


def _begins_with_no(text: str) -> bool:
    """Return True if it begins with a denial ("No new tables"). In "No, the other one" the first word is an answer."""
    found = _FIRST_WORD.match(text)
    return found is not None and denies((found[1],)) and len(text.split(maxsplit=2)) > 2


def _is_stressed(text: str) -> bool:
    """Return True if some words are in capitals and most are not. Short ones that are no function words name things."""
    found = _SHOUTED.findall(text)
    loud = [word for word in found if word.isupper() and _is_no_acronym(word)]
    return 0 < len(loud) <= len(found) // 3


def _is_no_acronym(word: str) -> bool:
    return len(word) > ACRONYM_CHARS_MAX or word.casefold() in function_words() or word.casefold() in stop_words()


@cache
def terms_of_form(name: str) -> frozenset[str]:
    """Return the terms of the phrases themselves: two sentences that only share these are not about the same."""
    return terms_of(" ".join(phrase_list(name)))
