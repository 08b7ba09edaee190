"""Texts made to fit: cut between characters as a reader sees them, put on one line each, lines made fewer."""

import unicodedata
from collections.abc import Sequence

from memory_engine.core.lazy import regex
from memory_engine.core.origins import UNATTRIBUTED
from memory_engine.core.sections import DECIDED, SAID

ELLIPSIS = "…"
_ELLIPSIS_BYTES = 3
_LOOK_BACK = 32
"""How far a cut goes back to spare a cluster of characters. A longer one is not a letter of any language."""
_WORD_SHARE = 0.6
"""A cut goes back to the end of a word if this much of the room is still used."""
_VIRAMA = 9
"""The combining class of the signs that bind an Indic consonant to the next."""
_LEFT_OUT = regex(r"\[(\d+) earlier lines? left out\]")
_WIDTHS = (400, 240, 160, 110, 80, 56)
"""Bytes that an older line is cut to, tried one after the other."""


def utf8_bytes(text: str) -> int:
    """How many bytes the text takes in UTF-8. A lone surrogate counts three: the log refuses it later, by name."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, bytes_max: int) -> str:
    """The text if it fits into `bytes_max` (at least 3), else its beginning and an ellipsis, together no longer.

    The cut falls between characters as people see them (no accent, emoji or flag is torn), and
    between words where there are any.
    """
    if len(text) <= bytes_max and utf8_bytes(text) <= bytes_max:
        return text
    head = _beginning(text, bytes_max - _ELLIPSIS_BYTES)
    at = _boundary(text, len(head))
    space = max(head.rfind(" ", 0, at), head.rfind("\n", 0, at))
    if not text[at : at + 1].isspace() and space >= at * _WORD_SHARE:
        at = space
    return head[:at].rstrip() + ELLIPSIS


def head_and_tail(text: str, bytes_max: int) -> str:
    """The text if it fits, else two thirds of the room from its beginning and the rest from its end."""
    if utf8_bytes(text) <= bytes_max:
        return text
    gap = "\n[…]\n"
    head = _beginning(text, bytes_max * 2 // 3)
    room = bytes_max - utf8_bytes(head) - utf8_bytes(gap)
    tail = _beginning(text[: -room - 1 : -1], room)[::-1]
    start = _boundary(text, len(text) - len(tail))
    return head[: _boundary(text, len(head))] + gap + text[max(start, len(text) - len(tail)) :]


def cut_line(text: str, bytes_max: int) -> str:
    """The text on one line, runs of white space as one space, cut to `bytes_max`."""
    return cut(" ".join(text.split()), bytes_max)


USER, AGENT, FOUND = "User: ", "Agent: ", "Found out: "
"""The beginnings of a summary's lines, which say whose words follow. A text is put on one line, so it begins none."""


def format_exchange(question: str, answer: str, *, question_bytes: int, answer_bytes: int) -> str:
    """An exchange as two lines of a summary; one for an unanswered question."""
    asked = f"{USER}{cut_line(question, question_bytes)}"
    if not answer.strip():
        return f"{asked} (not answered)"
    return f"{asked}\n{AGENT}{cut_line(answer, answer_bytes)}"


def format_finding(snippet: str, bytes_max: int) -> str:
    """A snippet of the scratchpad as a line of a summary."""
    return f"{FOUND}{cut_line(snippet, bytes_max)}"


def section_of(line: str) -> str:
    """The section of a summary's line that no model wrote: whose words it holds."""
    if line.startswith(USER):
        return SAID
    return DECIDED if line.startswith(AGENT) or _LEFT_OUT.fullmatch(line) else UNATTRIBUTED


def join_lines(*parts: str) -> str:
    """Texts as lines, empty ones left out."""
    return "\n".join(part for part in parts if part)


def fewer_lines(text: str, bytes_max: int) -> str:
    """The text within `bytes_max` (at least 64), without a model: the newest lines whole, older ones shortened.

    The newest lines take up to half of the room uncut. Older ones are cut, the more the less
    room there is; if even that is not enough the oldest go, and a first line says how many.
    """
    if utf8_bytes(text) <= bytes_max:
        return text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    gone = 0
    if lines and (marker := _LEFT_OUT.fullmatch(lines[0])) is not None:
        gone, lines = int(marker[1]), lines[1:]
    if not lines:
        return ""
    older, newest = _parted(lines, bytes_max // 2)
    for width in _WIDTHS:
        shorter = [cut(line, width) for line in older]
        fitted = _with_marker([*shorter, *newest], gone)
        if utf8_bytes(fitted) <= bytes_max:
            return fitted
    return _without_oldest([*(cut(line, _WIDTHS[-1]) for line in older), *newest], gone, bytes_max)


def _parted(lines: Sequence[str], room: int) -> tuple[Sequence[str], Sequence[str]]:
    """The older lines, and the newest that fit into `room` together (the last one cut to it if it must be)."""
    start = len(lines)
    for line in reversed(lines):
        room -= utf8_bytes(line) + 1
        if room < 0:
            break
        start -= 1
    if start == len(lines):
        last = lines[-1]
        return lines[:-1], [cut(last, max(3, room + utf8_bytes(last)))]
    return lines[:start], lines[start:]


def _without_oldest(lines: Sequence[str], gone: int, bytes_max: int) -> str:
    """The newest of the lines that fit together with the marker."""
    room = bytes_max - utf8_bytes(_marker(gone + len(lines)))
    start = len(lines)
    while start and room >= utf8_bytes(lines[start - 1]) + 1:
        start -= 1
        room -= utf8_bytes(lines[start]) + 1
    return _with_marker(lines[start:], gone + start)


def _with_marker(lines: Sequence[str], gone: int) -> str:
    return join_lines(_marker(gone) if gone else "", *lines)


def _marker(gone: int) -> str:
    return f"[{gone} earlier line{'s' * (gone != 1)} left out]"


def _beginning(text: str, bytes_max: int) -> str:
    """The longest beginning that takes no more than `bytes_max` bytes: whole code points."""
    encoded = text[: max(0, bytes_max)].encode("utf-8", "surrogatepass")
    end = min(len(encoded), max(0, bytes_max))
    while end < len(encoded) and encoded[end] & 0xC0 == 0x80:
        end -= 1
    return encoded[:end].decode("utf-8", "surrogatepass")


def _boundary(text: str, at: int) -> int:
    """The last place up to `at` at which no cluster of characters is torn (UAX 29, in its main lines)."""
    for place in range(at, max(0, at - _LOOK_BACK), -1):
        if place >= len(text) or not _belongs(text, place):
            return place
    return at if at > _LOOK_BACK else 0


def _belongs(text: str, at: int) -> bool:
    """Whether the character at `at` is one with those before it."""
    before, after = text[at - 1], text[at]
    if _extends(after) or before == "\u200d" or unicodedata.combining(before) == _VIRAMA:
        return True
    if before == "\r" and after == "\n":
        return True
    if _is_flag_half(before) and _is_flag_half(after):
        run = 0
        while run < at and _is_flag_half(text[at - 1 - run]):
            run += 1
        return run % 2 == 1
    return False


def _extends(character: str) -> bool:
    """Accents, vowel signs, joiners, variation selectors, skin tones, tags, and the inner letters of Hangul."""
    if character.isascii():
        return False
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or character in "\u200c\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or "\u1160" <= character <= "\u11ff"
    )


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
