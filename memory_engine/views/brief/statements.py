"""Splits a message into statements: whole sentences, word for word, each with its position in the message.

A message may contain text that its author did not write for it: code, a log, a mail, a table, an article. Form alone
decides, so that it works in any language: lines of code or data are material, and so is the middle of a text that is
longer than what people type. A block of material is one statement, of which the beginning and the end are shown.

Two statements that share terms are about the same thing, in any language. A path, a number or an identifier is one
term. Other words are reduced to their stems. In scripts without an English stemmer the beginning of a word is used,
since endings change; in scripts without spaces, pairs of characters. Function words are left out.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.identification import function_words
from memory_engine.language.prose import own_lines
from memory_engine.language.sentences import clean, spans
from memory_engine.language.text import (
    COMPOUND_WORD,
    compound_words,
    fold_case,
    is_unspaced,
    pairs,
    stem,
    stop_words,
    words,
)

MATERIAL_CHARS_MIN = 240
"""Code or data of fewer characters belongs to the sentence next to it: "set `x = 3` and go on"."""
OWN_CHARS_MAX = 6_000
"""People seldom type more characters. Only the beginning and the end of a longer text count as their own."""
EDGE_CHARS = 2_000
"""Number of characters at each end of a long text that count as the author's own."""
READ_CHARS_MAX = 40_000
"""Maximum number of characters of a message that are analysed: half at its beginning, half at its end."""
TERMS_CHARS_MAX = 6_000
"""Maximum number of characters that terms are read from: two thirds at the start of a text, one third at its end."""
BEGINNING_CHARS = 5
_HANGUL = regex("[\uac00-\ud7af]")
_WITHIN = regex(r"[_\-]+")
_VALUE = regex(r"[\d_/.@]")
_BULLETS = regex(r"(?:[-*•]\s+)+")


class MessageStatement(msgspec.Struct, frozen=True, gc=False):
    """A part of a message: the characters from `start` up to `end`.

    `text` is that part, line by line: only white space changes, and its bullet is removed. `material`: it was pasted,
    not written for this message. `buried`: it is in the middle of a long text. `begins_line`: it begins a line there.
    """

    text: str
    start: int
    end: int
    material: bool = False
    buried: bool = False
    begins_line: bool = False


def statements_of(text: str) -> tuple[MessageStatement, ...]:
    """Split a message into statements, in order."""
    found: list[MessageStatement] = []
    for start, end, material in _split_material(text):
        if material:
            found.append(MessageStatement(_clean_lines(text[start:end]), start, end, material=True))
        else:
            found += _sentences(text, start, end)
    return tuple(one for one in found if one.text)


def _sentences(text: str, start: int, end: int) -> Iterator[MessageStatement]:
    is_long = len(text) > OWN_CHARS_MAX
    for first, last in spans(text[start:end]):
        at, to = start + first, start + last
        buried = is_long and at > EDGE_CHARS and to < len(text) - EDGE_CHARS
        begins_line = not text[text.rfind("\n", 0, at) + 1 : at].strip()
        yield MessageStatement(_unbulleted(_clean_lines(text[at:to])), at, to, buried=buried, begins_line=begins_line)


def _clean_lines(text: str) -> str:
    """Return the text without control characters, blank lines and white space at the ends of lines."""
    return "\n".join(filter(None, map(clean, text.splitlines()))) if "\n" in text else clean(text)


def _unbulleted(text: str) -> str:
    found = _BULLETS.match(text)
    return text[found.end() :] if found else text


def _split_material(text: str) -> list[tuple[int, int, bool]]:
    """Return the parts of a text: start, end, and whether it is material."""
    if len(text) > READ_CHARS_MAX:
        head, tail = _break_after(text, READ_CHARS_MAX // 2), _break_before(text, len(text) - READ_CHARS_MAX // 2)
        later = [(start + tail, end + tail, material) for start, end, material in _split_material(text[tail:])]
        return _merge_parts([*_split_material(text[:head]), (head, tail, True), *later])
    if len(text) < MATERIAL_CHARS_MIN:
        return [(0, len(text), False)]
    lines = text.splitlines(keepends=True)
    own = frozenset(own_lines(text)) | frozenset(_tail(lines))
    parts: list[tuple[int, int, bool]] = []
    at = 0
    for number, line in enumerate(lines):
        is_own = number in own or (not line.strip() and bool(parts) and not parts[-1][2])
        parts.append((at, at + len(line), not is_own))
        at += len(line)
    return _merge_parts(_large_enough(_merge_parts(parts)))


def _tail(lines: Sequence[str]) -> Iterator[int]:
    """Yield the line numbers of the last paragraph, if it is prose: after a quoted mail it often holds the request."""
    n = len(lines)
    while n and not lines[n - 1].strip():
        n -= 1
    first = n
    while first and lines[first - 1].strip():
        first -= 1
    paragraph = lines[first:n]
    if len(own_lines("".join(paragraph))) == len(paragraph):
        yield from range(first, n)


def _large_enough(parts: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    return [(start, end, material and end - start >= MATERIAL_CHARS_MIN) for start, end, material in parts]


def _merge_parts(parts: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """Merge neighbouring parts of the same kind."""
    found: list[tuple[int, int, bool]] = []
    for start, end, material in parts:
        if found and found[-1][2] == material:
            found[-1] = (found[-1][0], end, material)
        elif start < end:
            found.append((start, end, material))
    return found


def _break_after(text: str, at: int) -> int:
    found = text.find("\n", at, at + EDGE_CHARS)
    return found + 1 if found >= 0 else at


def _break_before(text: str, at: int) -> int:
    found = text.rfind("\n", at - EDGE_CHARS, at)
    return found + 1 if found >= 0 else at


def terms_of(text: str, *, parts: bool = False) -> frozenset[str]:
    """Return the terms of a text. With `parts`, also those inside identifiers (`user_id`)."""
    if len(text) > TERMS_CHARS_MAX:
        text = f"{text[: TERMS_CHARS_MAX * 2 // 3]} {text[-TERMS_CHARS_MAX // 3 :]}"
    folded = fold_case(text)
    compounds = {*compound_words(folded)}
    values = {*filter(is_value, compounds)}
    found = {*_terms_of_words(_remove_values(values, compounds, folded)), *values}
    if parts:
        found.update(
            _terms_of_words(" ".join(_WITHIN.sub(" ", value) for value in values if value.replace("_", "").isalpha()))
        )
    return frozenset(found)


def _remove_values(values: set[str], compounds: set[str], text: str) -> str:
    if not values:
        return text
    if text.isascii():  # signs of other scripts may be outside of compound words
        return " ".join(compounds - values)
    return COMPOUND_WORD.sub(lambda match: " " if match.group() in values else match.group(), text)


def is_value(term: str) -> bool:
    """Return True if a term is a number, a path, an address or an identifier."""
    return _VALUE.search(term) is not None


def _terms_of_words(text: str) -> Iterator[str]:
    return chain.from_iterable(map(_terms_of_word, {*words(text)}))


@lru_cache(maxsize=1 << 15)
def _terms_of_word(word: str) -> Sequence[str]:
    if is_unspaced(word):
        return pairs(word)
    if not word.isascii() and _HANGUL.match(word):
        return (word[:2],)
    if word in function_words():
        return ()
    if word.isascii():
        return (stem(word),) if len(word) > 1 and word not in stop_words() else ()
    return (word[:BEGINNING_CHARS],)
