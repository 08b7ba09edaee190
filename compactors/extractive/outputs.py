"""The form of a tool's output: a numbered listing, search hits, names, a diff, a test run.

No tool's name is used here. A few passes over the text find everything, in linear time.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from memory_engine.compactors.extractive.runs import RunOfTests, run_of_tests
from memory_engine.core.lazy import regex
from memory_engine.language.sentences import clean
from memory_engine.language.text import is_unspaced

NUMBERED_SHARE, HITS_SHARE, NAMES_SHARE = 0.5, 0.6, 0.8
"""Minimum share of lines that must have the form."""
PROSE_SHARE = 0.45
"""Minimum share of lines in a prose text that are sentences or parts of them."""
SENTENCES_SHARE, SENTENCE_WORDS_MIN = 0.2, 7
"""Minimum share of complete sentences in a prose text, and the words that make a line without a stop one."""
_STOPS = (".", "!", "?", ":", ",", ";", "。", "\uff01", "\uff1f", "؟", "।")
SAMPLE_LINES = 200
"""Number of lines sampled to distinguish code from prose."""
SHOWN_CHARS_MAX = 120
LINE_CHARS_MAX = 400
SHORT_LINES_MAX, SHORT_CHARS_MAX = 3, 160
_CONTROL = regex(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_NUMBER = regex(r"(?m)^[ ]*(\d{1,7})(?:→|\t|: ?|\||[ ]{2})")
_HIT = regex(r"(?m)^(?!\s)((?:[A-Za-z]:)?[^\s:|][^:\n|]{0,300}?)[:-](\d{1,7})[:-]")
_NAME = regex(r"(?:[\w.@~+%-]+|[A-Za-z]:)?(?:[/\\][\w.@~+%, \[\]()-]+)*[/\\]?[*@]?")
_LONG_NAME = regex(r"[-dlbcps][rwxsStT-]{9}\S*\s+\d.*?\s(\S+)(?: -> \S+)?")
_DIFF_FILE = regex(r"(?m)^(?:diff --git a/(\S+) b/|\*\*\* (?:Update|Add|Delete) File: (\S+)|\+\+\+ (?:b/)?(\S+))")
_DIFF_MARK = regex(r"(?m)^(?:diff --git |@@ -\d|\*\*\* (?:Begin|Update|Add|Delete) )")
_HEADER = regex(r"[\[(<#=\s*]*(?:[Ff]ile\s*:\s*)?((?:[A-Za-z]:)?[\w.~@+-]*[/\\.][\w./\\~@+-]*\w)\b")
_EXIT = regex(r"(?i)\bexit(?:ed)?(?:\s+with)?(?:[\s_]*(?:code|status))?\s*[:=]?\s*(-?\d{1,3})\b")
_ERROR = regex(
    r"^\s*(?:[-*•]\s+|E\s+)?(?:[A-Z]\d{2,4}:?\s+)?(?:[\w.]*(?:Error|Exception)\b.*"
    r"|(?i:error|fatal|panic(?:ked)?|failed|failure)\b.*"
    r"|(?:[\w ,.:'-]{0,60} )?(?i:timed out)\b.*|.*\[Errno \d+\].*"
    r"|\S+: (?i:error|fatal|command not found|no such file|permission denied).*|\S*:\d+(?::\d+)?:? (?i:error)\b.*"
    r"|(?:bash|sh|zsh): .*|thread '.*' panicked.*)"
)
_MAY_TELL = regex(r"(?i)err|exception|fatal|panic|fail|timed|not found|no such|denied|sh: ")
"""A fast test that every line matching `_ERROR` passes."""
_TRACE = regex(r"(?m)^(?:Traceback \(most recent|\s+at \S+ ?\(|thread '.*' panicked|panic: )")
_CODE = regex(
    r"[{};\\]\s*$|^\s*(?:[})\]]|//|/\*|\*/|#!|#include|import\b|from\s+\S+\s+import|def |class |return\b|func |fn "
    r"|end\b|elif\b|else\b|try\b|except\b|@\w+|\$|<[/!\w])|\w\(|(?<!\w)\w++\s*+(?:[-+*/|&]?=|:=|=>|->)\s*\S"
    r"|^\s*[\w\"'-]+\s*:\s*[\"'\[{\d]"
)
_RULE = regex(r"[\s=\-_*~#+.]*")
_WORD = regex(r"[^\W\d_]+")
EMPTY = frozenset(
    (
        "",
        "[]",
        "{}",
        "null",
        "none",
        "no matches",
        "no matches found",
        "no results",
        "no results found",
        "no files found",
    )
)


class FileHits(msgspec.Struct, frozen=True, gc=False):
    """A file with the number of its lines that were found, or that were added and removed."""

    path: str
    count: int
    removed: int = 0


class Output(msgspec.Struct, frozen=True, gc=False):
    """An output's properties by its form; fields are empty for forms that it does not have."""

    lines: int
    is_empty: bool
    numbers: tuple[int, int] | None
    """The first and the last line of a listing with line numbers."""
    header: str
    """The path above the listing."""
    hits: tuple[FileHits, ...]
    names: tuple[str, ...]
    diff: tuple[FileHits, ...]
    run: RunOfTests | None
    exit_code: int | None
    error: str
    """The last line that reports an error."""
    has_trace: bool
    short: str
    """The whole of a text of a few lines, as one line."""
    first: str
    last: tuple[str, ...]
    """The last lines, in reverse order, without rules and bare numbers."""
    is_prose: bool


_RECORD = Output(1, False, None, "", (), (), (), None, None, "", False, "", "", (), False)


def read_output(text: str) -> Output:
    """Recognise the form of a text."""
    given = [_capped(line) for line in _CONTROL.sub("", text).split("\n") if line.strip()]
    text = "\n".join(given)
    count = len(given)
    numbers = _numbered_range(text, count)
    hits = () if numbers else _hits(text, count)
    telling = [line for line in (given[:8] + given[-12:] if count > 20 else given) if _tells(line)]
    beside = [line for line in given if not _NUMBER.match(line)] if numbers else given
    error = "" if hits else _error(beside[:12] if numbers else beside)
    return Output(
        lines=count,
        is_empty=text.strip().strip(".").lower() in EMPTY,
        numbers=numbers,
        header=_header(given) if numbers else "",
        hits=hits,
        names=() if numbers or hits else _listing_names(given),
        diff=_diff(text),
        run=None if numbers or hits else run_of_tests(given),
        exit_code=_exit_code(given),
        error=error,
        has_trace=not numbers and not hits and _TRACE.search(text) is not None,
        short=shorten_middle("; ".join(map(str.strip, given)), SHORT_CHARS_MAX) if 0 < count <= SHORT_LINES_MAX else "",
        first=clean(telling[0]) if telling else "",
        last=tuple(clean(line) for line in reversed(telling[-4:])),
        is_prose=not hits and _is_prose(given, numbered=numbers is not None),
    )


def _capped(line: str) -> str:
    """Return the line, or the beginning of a very long one, so that no expression takes long."""
    if len(line) <= LINE_CHARS_MAX:
        return line
    stop = line.rfind(" ", LINE_CHARS_MAX // 2, LINE_CHARS_MAX)
    return f"{line[: stop if stop > 0 else LINE_CHARS_MAX]} …"


def record_output(text: str) -> Output:
    """Return the form of a JSON text that holds only values."""
    return msgspec.structs.replace(
        _RECORD,
        is_empty=text.strip().lower() in EMPTY,
        first=clean(text[:SHOWN_CHARS_MAX]),
        last=(text[:SHOWN_CHARS_MAX],),
    )


def _numbered_range(text: str, count: int) -> tuple[int, int] | None:
    """Return the first and last line number if most lines are numbered consecutively."""
    found = [int(number) for number in _NUMBER.findall(text)]
    if len(found) < max(2, NUMBERED_SHARE * count):
        return None
    steps = sum(b - a == 1 for a, b in pairwise(found))
    return (found[0], found[-1]) if steps >= NUMBERED_SHARE * (len(found) - 1) and found[-1] >= found[0] else None


def _header(given: Sequence[str]) -> str:
    for line in given[:12]:
        found = _HEADER.match(line)
        if found is not None and "/" in found[1] + "/" and not _NUMBER.match(line):
            return found[1]
        if _NUMBER.match(line):
            break
    return ""


def _hits(text: str, count: int) -> tuple[FileHits, ...]:
    found = Counter(path for path, _ in _HIT.findall(text) if _names_file(path))
    if not found or found.total() < HITS_SHARE * count:
        return ()
    return tuple(FileHits(path, times) for path, times in found.most_common())


def _names_file(path: str) -> bool:
    return " " not in path and any(map(str.isalpha, path)) and any(sign in path for sign in "./\\")


def _listing_names(given: Sequence[str]) -> tuple[str, ...]:
    """Return a listing's names, one per line, long (`ls -l`) or short. A line that announces them does not count."""
    if len(given) > 1 and given[0].rstrip().endswith((":", "\uff1a")):
        given = given[1:]
    long = [found[1] for found in map(_LONG_NAME.fullmatch, map(str.strip, given)) if found is not None]
    if long and len(long) >= NAMES_SHARE * (len(given) - 1):
        return tuple(name for name in long if name not in (".", ".."))
    short = [line.strip() for line in given]
    like = [name for name in short if len(name) < 300 and _NAME.fullmatch(name) and _looks_like_path(name)]
    return tuple(like) if len(like) >= max(1, NAMES_SHARE * len(given)) else ()


def _looks_like_path(name: str) -> bool:
    if name.count(" ") > 2 or not any(map(str.isalpha, name)):
        return False
    return "/" in name or "\\" in name or (" " not in name and "." in name[1:-1])


def _diff(text: str) -> tuple[FileHits, ...]:
    if _DIFF_MARK.search(text) is None:
        return ()
    path, added, removed = "", Counter[str](), Counter[str]()
    for line in text.splitlines():
        if found := _DIFF_FILE.match(line):
            path = found[1] or found[2] or found[3]
            added[path] += 0
        elif path and line[:1] == "+" and line[:3] != "+++":
            added[path] += 1
        elif path and line[:1] == "-" and line[:3] != "---":
            removed[path] += 1
    return tuple(FileHits(path, count, removed[path]) for path, count in added.items())


def _exit_code(given: Sequence[str]) -> int | None:
    for line in (*given[:2], *given[-2:]):
        found = _EXIT.search(line)
        if found is not None:
            return int(found[1])
    return None


def _error(given: Sequence[str]) -> str:
    for line in reversed(given):
        if _MAY_TELL.search(line) and _ERROR.match(line):
            return clean(line)
    return ""


def _tells(line: str) -> bool:
    """Return True if a line holds more than rules and bare numbers."""
    return _RULE.fullmatch(line) is None and _WORD.search(line) is not None


def _is_prose(given: Sequence[str], *, numbered: bool) -> bool:
    """Return True if most lines are sentences, headings or list items of natural language."""
    sample = given[:SAMPLE_LINES]
    if numbered:
        sample = [line[found.end() :] if (found := _NUMBER.match(line)) else line for line in sample]
    sample = [line for line in sample if line.strip()]
    prose = list(filter(is_prose_line, sample))
    return (
        bool(sample)
        and len(prose) >= PROSE_SHARE * len(sample)
        and sum(map(_is_sentence, prose)) >= SENTENCES_SHARE * len(sample)
    )


def _is_sentence(line: str) -> bool:
    line = line.rstrip(" *_)\"'")
    return line.endswith(_STOPS) or len(_WORD.findall(line)) >= SENTENCE_WORDS_MIN


def is_prose_line(line: str) -> bool:
    """Return True if a line is a sentence or part of one, and not code or data."""
    if _CODE.search(line):
        return False
    words = _WORD.findall(line)
    letters = sum(map(len, words))
    enough = len(words) >= 3 or (letters >= 6 and any(map(is_unspaced, words)))
    return enough and letters >= 0.7 * len(line.replace(" ", ""))


def without_numbers(text: str) -> str:
    """Return a listing without its line numbers."""
    return _NUMBER.sub("", text)


def shorten_middle(text: str, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """Return a text as one line of about `chars_max` characters; a longer one loses its middle, between words."""
    text = clean(_CONTROL.sub("", text))
    if len(text) <= chars_max:
        return text
    words = [word if len(word) <= chars_max else "…" for word in text.split(" ")]
    head: list[str] = []
    tail: list[str] = []
    room = chars_max - 2
    while words:
        is_head = sum(map(len, head)) <= 1.5 * sum(map(len, tail))
        word = words[0 if is_head else -1]
        room -= len(word) + 1
        if room < 0:
            break
        if is_head:
            head.append(words.pop(0))
        else:
            tail.append(words.pop())
    return re.sub(
        r"(?:… )+…|…(?: …)+", "…", " ".join([*head, "…", *reversed(tail)] if words else [*head, *reversed(tail)])
    )
