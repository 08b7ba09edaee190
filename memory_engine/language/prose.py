"""Extraction of prose: what the author of a text says, without code, data, logs and quotations.

Rules that learn from wording read only prose: `password: x` in a pasted configuration is not a statement about anybody,
nor is `x: int = 5`, nor a mail quoted below its answer.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Generic, TypeVar

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.lists import content_of
from memory_engine.language.rough import rough_sentences

T = TypeVar("T")

GAP = "\ufffc"
"""Placeholder for code or a quotation inside a sentence."""
READ_CHARS_MAX = 20_000
LINE_CHARS_MAX = 2_000
"""Maximum length of a line of prose: longer lines are not prose."""
INDENT_CHARS = 4
CODE_SIGNS = frozenset("{}[]<>=;|\\$&*#@_^~")
CODE_SIGNS_SHARE = 0.2
CODE_LINES_SHARE = 0.5
"""Share of code or data lines from which a whole paragraph counts as code or data."""

_FENCE = regex(r"[ \t]{0,8}(?:>[ \t]?)?(`{3,}|~{3,})")
_HEADER = regex(
    r"(?i)[ \t]*\*?(?:from|von|de|da|van|sent|gesendet|enviado|envoyé|subject|betreff|asunto|objet)[ \t]?:\*? \S"
)
_EMPTY_KEY = regex(r"([ \t]*)(?:- )?[\"']?[\w.-]+[\"']?:[ \t]*(?:[|>&][+-]?)?$")
_PAIR = regex(r"[ \t]*(?:- )?[\"']?[\w.-]+[\"']?[ \t]*[:=]")
_INLINE = regex(r"(?<!`)(`++)[^`\n]{1,500}\1")
_SAID = regex(
    '"[^"\\n]{1,1000}"|\u201c[^\u201d\\n]{1,1000}[\u201d\u201c]|\u201e[^\u201c\u201d"\\n]{1,1000}[\u201c\u201d"]'
    "|\u00ab[^\u00bb\\n]{1,1000}\u00bb|\u2039[^\u203a\\n]{1,1000}\u203a|\u300c[^\u300d\\n]{1,1000}\u300d"
    "|(?<!\\w)['\u2018](?=\\w)[^'\u2019\\n]{1,300}['\u2019](?!\\w)"
)
_ADDRESS = regex(r"(?i)\b[a-z][a-z0-9+.\-]{1,20}://\S+|\bwww\.\S+")
_ITEM = regex(r"\s*(?:[-*+\u2022\u2013]|\d{1,3}[.)])\s+")


def prose(text: str) -> str:
    """Return the prose of a text, line by line, with `GAP` for inline code, addresses and quotations.

    Only the beginning of a long text is read.
    """
    said = "\n".join(_prose_lines(text[:READ_CHARS_MAX]))
    for other in (_INLINE, _SAID, _ADDRESS):
        said = other.sub(GAP, said)
    return said


def sentences(text: str) -> list[str]:
    """Return the sentences of a text's prose, in order, each with its final mark. A line break ends a sentence."""
    lines = (_ITEM.sub("", line, count=1) if _ITEM.match(line) else line for line in prose(text).splitlines())
    return list(chain.from_iterable(map(rough_sentences, lines)))


def is_all_prose(text: str) -> bool:
    """Return True if no line of a text is code, data, a log or a quotation. Inline code in backticks is allowed."""
    read = text[:READ_CHARS_MAX]
    return sum(1 for _ in _prose_lines(read)) == sum(1 for line in read.splitlines() if line.strip())


def own_lines(text: str) -> list[int]:
    """Return the numbers, from 0 and in order, of the lines that the author wrote as prose. Reads the whole text."""
    return [number for number, _ in _numbered(text)]


def _prose_lines(text: str) -> Iterator[str]:
    return (line for _, line in _numbered(text))


_Numbered = tuple[int, str]


def _numbered(text: str) -> Iterator[_Numbered]:
    paragraph: list[_Numbered] = []
    fence = ""
    for number, line in enumerate(text.splitlines()):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark is not None and mark[1].startswith(fence) else fence
            continue
        if _not_prose().quoted.match(line):
            break
        fence = mark[1] if mark is not None else ""
        if fence or not line.strip():
            yield from _prose_of(paragraph)
            paragraph = []
        else:
            paragraph.append((number, line))
    yield from _prose_of(paragraph)


def _prose_of(paragraph: list[_Numbered]) -> list[_Numbered]:
    """Return the prose lines of a paragraph: none if most lines are not prose, or if it is a mail header."""
    if sum(_HEADER.match(line) is not None for _, line in paragraph) > 1:
        return []
    own = [one for one in paragraph if not one[1].lstrip().startswith((">", "|"))]
    nested = _nested([line for _, line in own])
    kept = [one for n, one in enumerate(own) if n not in nested and not _is_code(one[1])]
    return kept if len(own) - len(kept) < CODE_LINES_SHARE * len(own) else []


def _nested(lines: list[str]) -> set[int]:
    """Return the numbers of lines of nested data: a key without a value, and the lines indented below it."""
    found: set[int] = set()
    for n, line in enumerate(lines[:-1]):
        opening = _EMPTY_KEY.match(line)
        if opening is None or not _PAIR.match(lines[n + 1]):
            continue
        below = n + 1
        while below < len(lines) and _indent(lines[below]) > len(opening[1]):
            below += 1
        found.update(range(n, below) if below > n + 1 else ())
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_code(line: str) -> bool:
    is_indented = line.startswith("\t") or _indent(line) >= INDENT_CHARS
    if len(line) > LINE_CHARS_MAX or (is_indented and not _ITEM.match(line)):  # list items may be indented
        return True
    if _not_prose().code.match(line) or _not_prose().log.match(line):
        return True
    signs = [sign for sign in line if not sign.isspace()]
    return line.rstrip().endswith((";", "{", "};", "):")) or (
        sum(sign in CODE_SIGNS for sign in signs) > CODE_SIGNS_SHARE * len(signs)
    )


class _Kinds(msgspec.Struct, Generic[T], frozen=True):
    """What tells each kind of text that is no prose; in `prose.toml`, parts of a regular expression."""

    code: T
    log: T
    quoted: T


@cache
def _not_prose() -> _Kinds[re.Pattern[str]]:
    listed = content_of("memory_engine.language", "prose.toml", _Kinds[tuple[str, ...]])
    return _Kinds(*(re.compile(rf"[ \t]*(?:{'|'.join(kind)})") for kind in (listed.code, listed.log, listed.quoted)))
