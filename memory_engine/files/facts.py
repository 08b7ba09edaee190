"""The facts of a text, recognised by their looks, and those that another text no longer says.

A fact is a word that could not be guessed: a number, a date, an amount, an id, a code, a path, an address,
an identifier, a name. A text that says a fact in other words, or says it wrongly, cannot be recognised here.
"""

import re
from collections.abc import Iterable, Iterator

from memory_engine.core.lazy import regex

VALUE = regex(r"[^\W_](?:(?:[\w@.:+#/-]|(?<=\d),(?=\d))*[^\W_])?")
"""A word, with the marks that hold ids, dates, amounts, paths and addresses together."""
_WORD = regex(r"[^\W\d_][\w’'-]*[^\W_]")
_CAMEL = regex(r"[a-zß-ÿ][A-ZÀ-Þ]")
_SUFFIX = regex(r"\w{2,}\.[^\W\d_]{1,8}")
_ENDS = frozenset('.!?:;"“”„«»‚‘([{<>|*#•–—-_/\\')  # noqa: RUF001 - quotation marks as people write them
"""After these, quotation marks among them, a capital letter says nothing."""


def facts_of(text: str) -> tuple[str, ...]:
    """The facts that a text states, once each, in order."""
    words = (match for match in VALUE.finditer(text) if is_value(match[0]) or _is_path(match[0]))
    found = sorted((*words, *_capitalised_words(text)), key=re.Match.start)
    return tuple(dict.fromkeys(one[0] for one in found if _begins(text, one.start()) and _ends(text, one.end())))


def is_value(word: str) -> bool:
    """Whether a word looks like an identifier, a code, a date or an amount: digits (not just one) or capitals only."""
    if any(character.isdigit() for character in word):
        return len(word) > 1
    return len(word) > 2 and word.isupper()


def _is_path(word: str) -> bool:
    """Whether it looks like a path, an address or an identifier of a program."""
    if "@" in word or "_" in word or word.count("/") > 1 or "::" in word:
        return True
    return len(word) > 4 and bool(_SUFFIX.fullmatch(word.rpartition("/")[2]) or _CAMEL.search(word))


def _capitalised_words(text: str) -> Iterator[re.Match[str]]:
    """Words with a capital letter where none was due."""
    for match in _WORD.finditer(text):
        word = match[0]
        if not word[0].isupper() or word[1] in "’'":
            continue
        before = text[max(0, match.start() - 4) : match.start()].rstrip(" ")
        if before and before[-1] != "\n" and before[-1] not in _ENDS:
            yield match


def missing(text: str, facts: Iterable[str]) -> list[str]:
    """Those of the facts that a text does not say, in their order."""
    return [fact for fact in facts if not stands_in(fact, text)]


def stands_in(fact: str, text: str) -> bool:
    """Whether a text says a fact verbatim, and not as a part of a longer word or number."""
    at = text.find(fact)
    while at >= 0:
        end = at + len(fact)
        if _begins(text, at) and _ends(text, end):
            return True
        at = text.find(fact, at + 1)
    return False


def _begins(text: str, at: int) -> bool:
    return at == 0 or not (_is_word(text[at - 1]) or text[at - 1] == ".")


def _ends(text: str, end: int) -> bool:
    following = text[end : end + 2]
    if not following:
        return True
    return not (_is_word(following[0]) or (len(following) == 2 and following[0] in ".," and following[1].isdecimal()))


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
