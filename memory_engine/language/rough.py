"""Approximate segmentation of a text into sentences and clauses, by punctuation alone.

For callers that read each part independently and tolerate abbreviations and open quotations: they search each part for
a form, or look for the part with most of a question's words. If a part must be meaningful without the others, use
`sentences.py`.
"""

import re
from collections.abc import Iterator

from memory_engine.core.lazy import regex

_ENDS, _WIDE_ENDS = ".!?\u2026\u061f\u06d4\u0964", "\u3002\uff01\uff1f\uff1b"
_CLOSERS = "\"'\u201d\u2019\u00bb)*_\ufffc"
"""Characters that may follow a sentence's final mark and belong to the sentence."""
SENTENCE_BORDER = regex(rf"(?<=[{_ENDS}])\s+|(?<=[{_ENDS}][{_CLOSERS}])\s+|(?<=[{_WIDE_ENDS}])\s*|(?<!\s)\s*\n\s*")
"""Separators of sentences: white space after a mark (and a closing bracket or quote), wide marks, line breaks."""
_BORDER_IN_ASCII = regex(r"\s(?:(?<=[.!?]\s)|(?<=[.!?][\"')*_]\s)|(?<!\s\s)(?:(?<=\n)|\s*\n))\s*")
"""`SENTENCE_BORDER` for ASCII, five times as fast: it begins with white space, which most characters are not."""
QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e", "\u2047")
SENTENCE_MARKS = _ENDS + _WIDE_ENDS
_MARK = regex(rf"[{SENTENCE_MARKS},;:\u2013\u2014\u3001\uff0c\uff1a]")
_COMMA = r",(?!\d)|[;:](?![\w/])|[()\u2013\u2014\u3001\uff0c\uff1b\uff1a]|\s-+\s"
_AND = r"(?<!\w)(?=(?:and|und|et|y)(?!\w))"
_CLAUSE_BORDER, _CLAUSE_BORDER_OR_AND = regex(_COMMA), regex(f"{_COMMA}|{_AND}", re.IGNORECASE)
_SPACED_BORDER = regex(r"[,;:](?=\s)|[\u3001\uff0c\uff1b\uff1a]|\s[-\u2013\u2014]+\s")
_CONJUNCTION = regex(r"\s*(?:and|so|then|und|also|et|y)(?!\w)\s*", re.IGNORECASE)
_BEFORE_MAX = 24
_BEGINNING = regex(
    r"(?:\A|[.!?…:;\u3002\uff01\uff1f|]['\"’”)\]»]*\s+|[\n\r]\s*)(?:(?:[-*•–—>]+|\d{1,2}[.)])\s+|['\"\u2018“(\[«„#*_]+\s?)*\Z"
)
"""Characters before the first word of a sentence, a line or a list item."""


def rough_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sentence, in order, without the white space between. A line break ends one."""
    start = 0
    for border in (_BORDER_IN_ASCII if text.isascii() else SENTENCE_BORDER).finditer(text):
        if border.start() > start:
            yield start, border.start()
        start = border.end()
    if start < len(text):
        yield start, len(text)


def rough_sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, each with its final mark. A line break ends a sentence."""
    return [said for start, end in rough_spans(text) if (said := text[start:end].strip())]


def asks(sentence: str) -> bool:
    """Return True if a sentence ends in a question mark, optionally followed by a bracket or quotation mark."""
    return sentence.rstrip(_CLOSERS).endswith(QUESTION_MARKS)


def begins_sentence(text: str, at: int) -> bool:
    """Return True if the word at this position begins a sentence, a line or a list item."""
    before = text[max(0, at - _BEFORE_MAX) : at]
    return _BEGINNING.search(before if at <= _BEFORE_MAX else "x" + before) is not None


def between_marks(text: str) -> list[str]:
    """Split a text at all marks of sentences and clauses, regardless of context: `a.b` gives two parts."""
    return _MARK.split(text)


def clause_spans(text: str, *, joined: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each clause, separated by commas, colons, semicolons, brackets and dashes.

    If `joined` is true, each "and" also begins a clause.
    """
    start = 0
    for border in (_CLAUSE_BORDER_OR_AND if joined else _CLAUSE_BORDER).finditer(text):
        yield start, border.start()
        start = border.end()
    yield start, len(text)


def spaced_clauses(text: str) -> list[str]:
    """Split a sentence into clauses, only where white space is next to the mark or the mark is a wide one.

    A folded text has no wide marks except `\u3001`: a Chinese sentence stays whole, because its words belong together.
    """
    return _SPACED_BORDER.split(text)


def behind_conjunction(text: str, at: int) -> int:
    """Return the position after the "and" or "so" that begins a clause, or the clause's start without one."""
    found = _CONJUNCTION.match(text, at)
    return found.end() if found is not None else at
