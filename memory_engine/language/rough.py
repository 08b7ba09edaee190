"""Rough cuts of a text into sentences and clauses, by marks alone.

They are for callers that read each part by itself and mind neither abbreviations nor open quotations: a form is looked
for in each, or the part with most of a question's words. Where a part must mean something without the others, use
`sentences.py`.
"""

import re
from collections.abc import Iterator

from memory_engine.core.lazy import regex

_ENDS, _WIDE_ENDS = ".!?\u2026\u061f\u06d4\u0964", "\u3002\uff01\uff1f\uff1b"
_CLOSERS = "\"'\u201d\u2019\u00bb)*_\ufffc"
"""What may close behind the mark that ends a sentence, and belong to it."""
SENTENCE_BORDER = regex(rf"(?<=[{_ENDS}])\s+|(?<=[{_ENDS}][{_CLOSERS}])\s+|(?<=[{_WIDE_ENDS}])\s*|(?<!\s)\s*\n\s*")
"""What parts two sentences: white space behind a mark (a bracket or quotation mark between them), wide marks, lines."""
_BORDER_IN_ASCII = regex(r"\s(?:(?<=[.!?]\s)|(?<=[.!?][\"')*_]\s)|(?<!\s\s)(?:(?<=\n)|\s*\n))\s*")
"""The same, five times as fast: it begins with white space, which most characters are not."""
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
"""The marks before the first word of a sentence, a line, a list's entry."""


def rough_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end, in order, without the white space between them. A line break ends one."""
    start = 0
    for border in (_BORDER_IN_ASCII if text.isascii() else SENTENCE_BORDER).finditer(text):
        if border.start() > start:
            yield start, border.start()
        start = border.end()
    if start < len(text):
        yield start, len(text)


def rough_sentences(text: str) -> list[str]:
    """The sentences of a text in order, each with the mark that ends it. A line break ends one."""
    return [said for start, end in rough_spans(text) if (said := text[start:end].strip())]


def asks(sentence: str) -> bool:
    """Whether a sentence ends in a question mark, with or without a bracket or quotation mark behind it."""
    return sentence.rstrip(_CLOSERS).endswith(QUESTION_MARKS)


def begins_sentence(text: str, at: int) -> bool:
    """Whether a sentence, a line or an entry of a list begins with the word at this place."""
    before = text[max(0, at - _BEFORE_MAX) : at]
    return _BEGINNING.search(before if at <= _BEFORE_MAX else "x" + before) is not None


def between_marks(text: str) -> list[str]:
    """The parts of a text between the marks of sentences and clauses, wherever they are: `a.b` is two."""
    return _MARK.split(text)


def clause_spans(text: str, *, joined: bool = False) -> Iterator[tuple[int, int]]:
    """Where the clauses of a sentence begin and end: parted by commas, colons, semicolons, brackets and dashes.

    With `joined`, a clause begins at each "and" too.
    """
    start = 0
    for border in (_CLAUSE_BORDER_OR_AND if joined else _CLAUSE_BORDER).finditer(text):
        yield start, border.start()
        start = border.end()
    yield start, len(text)


def spaced_clauses(text: str) -> list[str]:
    """The clauses of a sentence, cut only where white space is beside the mark, or the mark is a wide one.

    A folded text has no wide marks but `\u3001`: a Chinese sentence stays whole, as its words belong together.
    """
    return _SPACED_BORDER.split(text)


def behind_conjunction(text: str, at: int) -> int:
    """The place behind the "and" or "so" that a clause begins with; where it begins with neither, its beginning."""
    found = _CONJUNCTION.match(text, at)
    return found.end() if found is not None else at
